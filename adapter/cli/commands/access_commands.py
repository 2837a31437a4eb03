"""How are the verbs typed that reach into workers: their logs, commands, ports and files?"""

import argparse

from adapter.cli.commands.options import VerbParsers, add_manager_login, add_verb

_ACCESS_NOTE = """\
A worker's pod in the manager does not run there, so `kubectl {verb}` does not reach it. This does, by the rights that you have in the manager:
those that `kubectl {verb}` asks for, and the right to use the component worker-access. No login to a worker cluster is needed. Pods
that run in the manager, such as a head, are left to kubectl.
"""
_LOGS_DESCRIPTION = f"""\
Prints what the workers of a job have printed, or one pod. With -f it goes on, also with workers that come later, until the job is over.

{_ACCESS_NOTE.format(verb="logs")}"""
_LOGS_EPILOG = """\
example:
  kubectl rayspan logs -f my-job
  [pod/my-job-x7k2p-workers-worker-a/ray-worker] Local node IP: 10.1.0.4
  kubectl rayspan logs my-job-x7k2p-workers-worker-a --tail 20

A word is taken for a pod where there is one of that name, else for a job; pod/NAME, rayjob/NAME, raycluster/NAME and rayservice/NAME are
clear. A log that breaks off while its worker runs is followed again, and may repeat its last seconds.

exit code: 0 it is shown, 2 there is no such job or pod or the command line is wrong, 1 or kubectl's own: it could not be shown
"""
_EXEC_DESCRIPTION = f"""\
Runs a command in a worker.

{_ACCESS_NOTE.format(verb="exec")}
The worker cluster's administrator must have allowed commands: it gives the manager logs alone at first."""
_EXEC_EPILOG = """\
example:
  kubectl rayspan exec my-job-x7k2p-workers-worker-a -- ray status
  kubectl rayspan exec -it my-job-x7k2p-workers-worker-a -- bash

exit code: that of the command; 2 there is no such pod or the command line is wrong, 1 it could not be run
"""
_FORWARD_DESCRIPTION = f"""\
Leads ports of this machine to a worker.

{_ACCESS_NOTE.format(verb="port-forward")}
The worker cluster's administrator must have allowed it, by the same role as commands."""
_FORWARD_EPILOG = """\
example:
  kubectl rayspan port-forward my-job-x7k2p-workers-worker-a 8265:8265

exit code: kubectl's; 2 there is no such pod or the command line is wrong
"""
_CP_DESCRIPTION = f"""\
Copies a file or a folder from a worker to this machine, or to a worker.

{_ACCESS_NOTE.format(verb="cp")}
It is a command in the worker, which needs tar in its image."""
_CP_EPILOG = """\
example:
  kubectl rayspan cp my-job-x7k2p-workers-worker-a:/tmp/ray/session_latest/logs ./logs
  kubectl rayspan cp ./data.csv my-job-x7k2p-workers-worker-a:/tmp/data.csv

exit code: 0 it is copied, 2 there is no such pod or the command line is wrong, 1 anything else
"""
_POD_HELP = "name of a worker's pod in the manager"


def add(verbs: VerbParsers) -> None:
    """Add them and their options to the command line."""
    _add_logs(verbs)
    _add_exec(verbs)
    forward = add_verb(
        verbs,
        "port-forward",
        _run_port_forward,
        "lead ports of this machine to a worker",
        _FORWARD_DESCRIPTION,
        _FORWARD_EPILOG,
    )
    forward.add_argument("pod", metavar="POD", help=_POD_HELP)
    forward.add_argument("ports", nargs="+", metavar="PORT", help="[LOCAL:]REMOTE, as for kubectl")
    forward.add_argument("--address", default="localhost", help="where this machine listens (default: localhost)")
    _add_namespace_and_login(forward)
    copy = add_verb(verbs, "cp", _run_cp, "copy files from a worker, or to one", _CP_DESCRIPTION, _CP_EPILOG)
    copy.add_argument("source", metavar="SOURCE", help="POD:PATH, or a path of this machine")
    copy.add_argument("goal", metavar="GOAL", help="the same")
    _add_container(copy)
    _add_namespace_and_login(copy)


def _add_logs(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "logs", _run_logs, "print what a job's workers print", _LOGS_DESCRIPTION, _LOGS_EPILOG)
    verb.add_argument("what", metavar="JOB|POD", help="name of a job or of a pod")
    verb.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    verb.add_argument("-p", "--previous", action="store_true", help="of the container that ran before")
    verb.add_argument("--tail", default="", metavar="LINES", help="how many of the last lines (default: all)")
    verb.add_argument("--since", default="", metavar="DURATION", help="only what is no older, such as 5m")
    verb.add_argument("--timestamps", action="store_true", help="begin each line with its time")
    verb.add_argument(
        "--max-log-requests",
        type=int,
        default=20,
        metavar="N",
        help="how many workers to follow at once, a kubectl of some 40 MB for each (default: 20)",
    )
    _add_container(verb)
    _add_namespace_and_login(verb)


def _add_exec(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "exec", _run_exec, "run a command in a worker", _EXEC_DESCRIPTION, _EXEC_EPILOG)
    verb.add_argument("pod", metavar="POD", help=_POD_HELP)
    verb.add_argument("words", nargs="+", metavar="COMMAND", help="the command and its words, after --")
    verb.add_argument("-i", "--stdin", action="store_true", help="let it read what you type")
    verb.add_argument("-t", "--tty", action="store_true", help="give it a terminal")
    _add_container(verb)
    _add_namespace_and_login(verb)


def _add_container(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-c", "--container", default="", help="which container (default: as kubectl chooses)")


def _add_namespace_and_login(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-n", "--namespace", default="", help="where it is (default: the context's)")
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
