"""Verbs that reach workers: logs, exec, port-forward and cp."""

import argparse

from adapter.cli.commands.options import VerbParsers, add_manager_login, add_verb

_ACCESS_NOTE = """\
A manager pod of a worker does not run in the manager cluster, so `kubectl {verb}` does not reach the worker.
This command does. It needs no login to a worker cluster, but these rights in the manager cluster: those of
`kubectl {verb}`, and the right to use the component worker-access. For pods that run in the manager cluster,
such as a head, it calls kubectl.
"""
_LOGS_DESCRIPTION = f"""\
Print the logs of a job's workers, or of one pod. With -f, follow them until the job has ended, including those of
workers that start later.

{_ACCESS_NOTE.format(verb="logs")}"""
_LOGS_EPILOG = """\
example:
  kubectl rayspan logs -f my-job
  [pod/my-job-x7k2p-workers-worker-a/ray-worker] Local node IP: 10.1.0.4
  kubectl rayspan logs my-job-x7k2p-workers-worker-a --tail 20

A name selects the pod of that name if there is one, and otherwise a job. pod/NAME, rayjob/NAME, raycluster/NAME and
rayservice/NAME are unambiguous. If a log breaks off while its worker runs, it is followed again, and may repeat its
last seconds.

exit code: 0 the logs were printed, 2 there is no such job or pod or the command line is wrong, 1 or that of kubectl:
the logs could not be printed
"""
_EXEC_DESCRIPTION = f"""\
Run a command in a worker.

{_ACCESS_NOTE.format(verb="exec")}
The worker cluster's administrator must have allowed commands; `rayspan join` alone does not."""
_EXEC_EPILOG = """\
example:
  kubectl rayspan exec my-job-x7k2p-workers-worker-a -- ray status
  kubectl rayspan exec -it my-job-x7k2p-workers-worker-a -- bash

exit code: that of the command; 2 there is no such pod or the command line is wrong, 1 the command could not be run
"""
_FORWARD_DESCRIPTION = f"""\
Forward local ports to a worker.

{_ACCESS_NOTE.format(verb="port-forward")}
The worker cluster's administrator must have allowed it, with the same role as commands."""
_FORWARD_EPILOG = """\
example:
  kubectl rayspan port-forward my-job-x7k2p-workers-worker-a 8265:8265

exit code: kubectl's; 2 there is no such pod or the command line is wrong
"""
_CP_DESCRIPTION = f"""\
Copy a file or a directory from a worker to this machine, or from this machine to a worker.

{_ACCESS_NOTE.format(verb="cp")}
It runs tar in the worker, so the image must contain tar."""
_CP_EPILOG = """\
example:
  kubectl rayspan cp my-job-x7k2p-workers-worker-a:/tmp/ray/session_latest/logs ./logs
  kubectl rayspan cp ./data.csv my-job-x7k2p-workers-worker-a:/tmp/data.csv

exit code: 0 it was copied, 2 there is no such pod or the command line is wrong, 1 any other failure
"""
_POD_HELP = "name of the worker's manager pod"


def add(verbs: VerbParsers) -> None:
    """Add the verbs and their options."""
    _add_logs(verbs)
    _add_exec(verbs)
    forward = add_verb(
        verbs,
        "port-forward",
        _run_port_forward,
        "forward local ports to a worker",
        _FORWARD_DESCRIPTION,
        _FORWARD_EPILOG,
    )
    forward.add_argument("pod", metavar="POD", help=_POD_HELP)
    forward.add_argument("ports", nargs="+", metavar="PORT", help="[LOCAL:]REMOTE, as for kubectl")
    forward.add_argument("--address", default="localhost", help="local address to listen on (default: localhost)")
    _add_namespace_and_login(forward)
    copy = add_verb(verbs, "cp", _run_cp, "copy files from or to a worker", _CP_DESCRIPTION, _CP_EPILOG)
    copy.add_argument("source", metavar="SOURCE", help="POD:PATH, or a local path")
    copy.add_argument("goal", metavar="GOAL", help="POD:PATH, or a local path")
    _add_container(copy)
    _add_namespace_and_login(copy)


def _add_logs(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "logs", _run_logs, "print the logs of a job's workers", _LOGS_DESCRIPTION, _LOGS_EPILOG)
    verb.add_argument("what", metavar="JOB|POD", help="name of a job or of a pod")
    verb.add_argument("-f", "--follow", action="store_true", help="follow the logs")
    verb.add_argument("-p", "--previous", action="store_true", help="print the logs of the previous container")
    verb.add_argument("--tail", default="", metavar="LINES", help="number of the last lines to print (default: all)")
    verb.add_argument(
        "--since", default="", metavar="DURATION", help="print only lines that are not older than this, such as 5m"
    )
    verb.add_argument("--timestamps", action="store_true", help="begin each line with its time")
    verb.add_argument(
        "--max-log-requests",
        type=_parse_count,
        default=20,
        metavar="N",
        help="number of workers to follow at once; each takes a kubectl of about 40 MB (default: 20)",
    )
    _add_container(verb)
    _add_namespace_and_login(verb)


def _parse_count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a number of logs: use 1 or more")


def _add_exec(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "exec", _run_exec, "run a command in a worker", _EXEC_DESCRIPTION, _EXEC_EPILOG)
    verb.add_argument("pod", metavar="POD", help=_POD_HELP)
    # The parser gets none of the words after `--` (parser.py).
    verb.add_argument("words", nargs="*", metavar="COMMAND", help="the command and its arguments, after --")
    verb.add_argument("-i", "--stdin", action="store_true", help="pass the standard input to the command")
    verb.add_argument("-t", "--tty", action="store_true", help="give the command a terminal")
    _add_container(verb)
    _add_namespace_and_login(verb)


def _add_container(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-c", "--container", default="", help="name of the container (default: as kubectl chooses)")


def _add_namespace_and_login(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-n", "--namespace", default="", help="namespace of the job or pod (default: the context's)")
    add_manager_login(verb)


def _run_logs(args: argparse.Namespace) -> int:
    from adapter.cli.worker_access import follow_logs

    return follow_logs.main(args)


def _run_exec(args: argparse.Namespace) -> int:
    from adapter.cli.worker_access import exec_and_forward

    return exec_and_forward.run_exec(args)


def _run_port_forward(args: argparse.Namespace) -> int:
    from adapter.cli.worker_access import exec_and_forward

    return exec_and_forward.run_port_forward(args)


def _run_cp(args: argparse.Namespace) -> int:
    from adapter.cli.worker_access import copy_files

    return copy_files.main(args)
