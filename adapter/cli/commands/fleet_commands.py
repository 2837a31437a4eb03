"""How are the verbs about the fleet typed: what it holds, whether it takes jobs, whether workers could join, which cluster takes none?"""

import argparse
from datetime import timedelta

from adapter.cli.commands import options
from adapter.cli.commands.options import VerbParsers, add_manager_login, add_output, add_verb

_TOP_DESCRIPTION = """\
Shows the worker clusters: whether they are connected, which workers they have, and how much of their quota is free.
"""
_TOP_EPILOG = """\
example:
  kubectl rayspan top
  CLUSTER   ZONE         CONNECTED   REACHABLE   OPEN   RESERVED   WORKERS
  east      us-east-1a   True        True        yes    3          2 Running, 1 Pending
  west      us-west-2b   True        -           no     0          -

  CLUSTER   CLUSTERQUEUE   FLAVOR   RESOURCE   NOMINAL   USED   FREE
  east      ray            any      cpu        64        12     52

columns:
  REACHABLE what `kubectl rayspan preflight` found; "-" was not tried
  OPEN      whether new workers may go there: no while it is cordoned or drained
  RESERVED  for how many workers quota is held there
  WORKERS   pods of the manager that have a place there, by phase
  USED      by everybody, with what other jobs were just promised
  FREE      borrowing included

It is for administrators: it reads the WorkerClusters, the queues and the worker pods of all namespaces in the manager cluster. Quota is the
controller's answer, for whoever may ask for plans; a cluster to which no worker may go now shows none. What could not be read is told.

While nothing can be dispatched at all, the last lines say why: no worker cluster is connected and open, no queue has the check, or the check
cannot be served. So `until kubectl rayspan top; do sleep 10; done` waits for a fleet. What you may not read is not taken for missing.

exit code: 0 it is shown, 3 it is shown and nothing can be dispatched now, 2 the command line is wrong, 1 the manager cluster cannot be asked
"""
_CHECK_DESCRIPTION = """\
Says whether jobs can be dispatched now, and in a sentence each what is in the way and what to do about it.
"""
_CHECK_EPILOG = """\
example:
  kubectl rayspan check
  Nothing can be dispatched.
  WorkerCluster east is cordoned; `kubectl rayspan uncordon east` lets new workers go there again.
  WorkerCluster west takes no workers (Unreachable): connection refused.

They can while a controller leads, a ClusterQueue that lets jobs in has an AdmissionCheck that is served, and a WorkerCluster of its policy
is connected and open; whether there is quota for them, `kubectl rayspan plan` says. What is in the way of some jobs alone is told, too, with
exit code 0. So `until kubectl rayspan check; do sleep 10; done` waits until the first job can go.

It is for administrators, and reads the manager cluster alone: WorkerClusters, DispatchPolicies, ClusterQueues, AdmissionChecks, and the
controller's Lease. What you may not read is not taken for missing, and then the answer may be that it is not known.

exit code: 0 they can, 3 nothing can be dispatched, 2 the command line is wrong, 1 it cannot be told
"""
_CORDON_DESCRIPTION = """\
Keeps new workers away from a worker cluster. Those that run there stay; `kubectl rayspan drain` moves them.
"""
_UNCORDON_DESCRIPTION = """\
Lets new workers go to a worker cluster again, and stops a drain of it. What a drain has moved stays where it is now.
"""
_CORDON_EPILOG = """\
example:
  kubectl rayspan {verb} east
  workercluster/east {verb}ed

exit code: 0 it is {verb}ed, 2 the command line is wrong, 1 anything else
"""
_DRAIN_DESCRIPTION = """\
Moves the workers out of a worker cluster, a few at a time (spec.maxUnavailable of the WorkerCluster), and keeps new ones away.
A worker finishes its running tasks, if its grace period allows, and is replaced in another cluster that has room.
Nothing is moved before there is room for it.
"""
_DRAIN_EPILOG = """\
example:
  kubectl rayspan drain east
  workercluster/east draining
  RayJob default/train: 2 workers left; 2 of 4 workers to east, 2 to west.
  RayJob default/train: 1 worker left; 1 of 4 workers to east, 3 to west.
  RayJob default/train: no worker left
  workercluster/east drained

With `-o json` each line is all that is left, whenever that changes. Ctrl-C stops the watching, not the drain. The same command watches again; `kubectl rayspan uncordon` stops the drain.

exit code: 0 it is drained, 2 the command line is wrong, 1 anything else
"""
_PREFLIGHT_DESCRIPTION = """\
Tries whether workers could join from the worker clusters: rights, namespace, LocalQueue and image there, DNS, and whether pods of all
clusters reach each other, how fast, and with the same clock. Short-lived pods do that, two in each cluster, in the namespace where jobs
would run. The result becomes the condition Reachable of the WorkerClusters.

You need an administrator's rights in the manager cluster: to read the worker clusters' kubeconfigs in rayspan-system, to run pods, and to
write the status of WorkerClusters. In the worker clusters the rights of those kubeconfigs are used, which are the controller's; the
machine that you do this on must reach the API servers that they name.
"""
_PREFLIGHT_EPILOG = """\
example:
  kubectl rayspan preflight
  kubectl rayspan preflight --worker-cluster east -n research --queue ray --image rayproject/ray:2.60.0

Each way between two clusters is tried on one high port. Ray's nodes choose ports of their own, so all must be open; the one that is
tried stands for them, because no list of well-known ports holds it.

exit code: 0 all is well, 3 something would keep workers from joining, 2 the command line is wrong, 1 anything else
"""


def add(verbs: VerbParsers) -> None:
    """Add them and their options to the command line."""
    top = add_verb(verbs, "top", _run_top, "show what the worker clusters hold", _TOP_DESCRIPTION, _TOP_EPILOG)
    add_output(top)
    add_manager_login(top)
    check = add_verb(
        verbs, "check", _run_check, "say whether jobs can be dispatched", _CHECK_DESCRIPTION, _CHECK_EPILOG
    )
    add_output(check)
    add_manager_login(check)
    for name, summary, text in (
        ("cordon", "keep new workers away from a worker cluster", _CORDON_DESCRIPTION),
        ("uncordon", "let new workers go to a worker cluster again", _UNCORDON_DESCRIPTION),
    ):
        options.add_worker_cluster(add_verb(verbs, name, _run_cordon, summary, text, _CORDON_EPILOG.format(verb=name)))
    _add_drain(verbs)
    _add_preflight(verbs)


def _add_drain(verbs: VerbParsers) -> None:
    verb = add_verb(
        verbs, "drain", _run_drain, "move the workers out of a worker cluster", _DRAIN_DESCRIPTION, _DRAIN_EPILOG
    )
    options.add_worker_cluster(verb)
    verb.add_argument(
        "--timeout",
        type=options.parse_duration,
        default=timedelta(0),
        help="how long to watch, such as 10m (default: until it is empty)",
    )
    verb.add_argument(
        "--wait", choices=("true", "false"), default="true", help="watch until it is empty (default: true)"
    )
    options.add_stream_output(verb)


def _add_preflight(verbs: VerbParsers) -> None:
    summary = "try whether workers could join from the worker clusters"
    verb = add_verb(verbs, "preflight", _run_preflight, summary, _PREFLIGHT_DESCRIPTION, _PREFLIGHT_EPILOG)
    verb.add_argument(
        "--worker-cluster",
        action="append",
        default=[],
        metavar="WORKERCLUSTER",
        help="only this one, and the manager; repeat (default: all)",
    )
    verb.add_argument("-n", "--namespace", default="", help="where jobs would run (default: the context's)")
    verb.add_argument(
        "--queue",
        action="append",
        default=[],
        help="LocalQueue that must be there; repeat (default: those of the namespace whose jobs Rayspan dispatches)",
    )
    verb.add_argument(
        "--image", default="", help="what the pods run, with python3 in it (default: the controller's own image)"
    )
    verb.add_argument(
        "--timeout",
        type=options.parse_duration,
        default=timedelta(seconds=60),
        help="how long a pod may take to start, and again to answer (default: 60s)",
    )
    add_output(verb)
    add_manager_login(verb)


def _run_top(args: argparse.Namespace) -> int:
    from adapter.cli import top

    return top.main(args)


def _run_check(args: argparse.Namespace) -> int:
    from adapter.cli import check

    return check.main(args)


def _run_cordon(args: argparse.Namespace) -> int:
    from adapter.cli import cordon

    return cordon.main(args)


def _run_drain(args: argparse.Namespace) -> int:
    from adapter.cli import drain

    return drain.main(args)


def _run_preflight(args: argparse.Namespace) -> int:
    from adapter.cli.preflight import command

    return command.main(args)
