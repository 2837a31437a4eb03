"""Verbs about the fleet: top, check, cordon, uncordon, drain and preflight."""

import argparse
from datetime import timedelta

from adapter.cli.commands import options
from adapter.cli.commands.options import VerbParsers, add_manager_login, add_output, add_verb

_TOP_DESCRIPTION = """\
Show the worker clusters: whether they are connected, which workers they run, and how much of their quota is free.
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
  REACHABLE the result of the last `kubectl rayspan preflight`; "-" if there was none
  OPEN      whether new workers may be placed there: no while it is cordoned or drained
  RESERVED  the number of workers whose quota is held there
  WORKERS   the manager pods with a slot there, by phase
  USED      by all jobs, including quota that was just promised to other jobs
  FREE      including quota that may be borrowed

This command is for administrators: it reads the WorkerClusters, the queues and the worker pods of all namespaces in the
manager cluster. Quota comes from the controller and needs the right to ask for plans; a cluster to which no worker may
go now shows none. The output names what could not be read.

While nothing can be dispatched, the last lines say why: no worker cluster is connected and open, no queue has the
check, or the check cannot be served. So `until kubectl rayspan top; do sleep 10; done` waits for a fleet. Objects that
you may not read do not count as missing.

exit code: 0 the clusters are shown, 3 they are shown and nothing can be dispatched now, 2 the command line is wrong,
1 the manager cluster cannot be reached
"""
_CHECK_DESCRIPTION = """\
Check whether jobs can be dispatched now. Each obstacle is one sentence that says what to do about it.
"""
_CHECK_EPILOG = """\
example:
  kubectl rayspan check
  Nothing can be dispatched.
  WorkerCluster east is cordoned; `kubectl rayspan uncordon east` lets new workers go there again.
  WorkerCluster west takes no workers (Unreachable): connection refused.

Jobs can be dispatched while a controller leads, a ClusterQueue that admits jobs has an AdmissionCheck that is served,
and a WorkerCluster of its policy is connected and open. `kubectl rayspan plan` shows whether there is quota for a job.
Obstacles for only some of the jobs are printed too, with exit code 0. So
`until kubectl rayspan check; do sleep 10; done` waits until the first job can be dispatched.

This command is for administrators. It reads only the manager cluster: WorkerClusters, DispatchPolicies, ClusterQueues,
AdmissionChecks, and the controller's Lease. Objects that you may not read do not count as missing; then the answer may
be that it is not known.

exit code: 0 jobs can be dispatched, 3 nothing can be dispatched, 2 the command line is wrong, 1 it is not known
"""
_CORDON_DESCRIPTION = """\
Keep new workers away from a worker cluster. Running workers stay; `kubectl rayspan drain` moves them.
"""
_UNCORDON_DESCRIPTION = """\
Allow new workers in a worker cluster again, and stop a drain of it. Workers that the drain has moved stay where they
are now.
"""
_CORDON_EPILOG = """\
example:
  kubectl rayspan {verb} east
  workercluster/east {verb}ed

exit code: 0 the cluster is {verb}ed, 2 the command line is wrong, 1 any other failure
"""
_DRAIN_DESCRIPTION = """\
Move the workers out of a worker cluster, a few at a time (spec.maxUnavailable of the WorkerCluster), and keep new ones
away. A worker finishes its running tasks if its grace period is long enough, and is replaced in another cluster that
has capacity. A worker is moved only when there is capacity for it.
"""
_DRAIN_EPILOG = """\
example:
  kubectl rayspan drain east
  workercluster/east draining
  RayJob default/train: 2 workers left; 2 of 4 workers to east, 2 to west.
  RayJob default/train: 1 worker left; 1 of 4 workers to east, 3 to west.
  RayJob default/train: no worker left
  workercluster/east drained

With `-o json`, each line lists all workers that are left, whenever that changes. Ctrl-C stops this command, not the
drain. The same command watches the drain again; `kubectl rayspan uncordon` stops the drain.

exit code: 0 the cluster is drained, 2 the command line is wrong, 1 any other failure
"""
_PREFLIGHT_DESCRIPTION = """\
Test whether workers could join from the worker clusters: rights, namespace, LocalQueue and image there, DNS, whether
the pods of all clusters reach each other, how fast, and whether their clocks agree. Two short-lived pods in each
cluster do this, in the namespace where jobs would run. The result becomes the condition Reachable of the
WorkerClusters.

You need an administrator's rights in the manager cluster: to read the worker clusters' kubeconfigs in rayspan-system,
to run pods, and to write the status of WorkerClusters. In the worker clusters the command has the rights of those
kubeconfigs, which the controller uses too. This machine must reach the API servers that they name.
"""
_PREFLIGHT_EPILOG = """\
example:
  kubectl rayspan preflight
  kubectl rayspan preflight --worker-cluster east -n research --queue ray --image rayproject/ray:2.60.0

Each path between two clusters is tested on one high port. Ray nodes choose their own ports, so all ports must be open.
The tested port represents them, because it is in no list of well-known ports.

exit code: 0 all tests passed, 3 something would keep workers from joining, 2 the command line is wrong,
1 any other failure
"""


def add(verbs: VerbParsers) -> None:
    """Add the verbs and their options."""
    top = add_verb(verbs, "top", _run_top, "show the worker clusters and their quota", _TOP_DESCRIPTION, _TOP_EPILOG)
    add_output(top)
    add_manager_login(top)
    check = add_verb(
        verbs, "check", _run_check, "check whether jobs can be dispatched", _CHECK_DESCRIPTION, _CHECK_EPILOG
    )
    add_output(check)
    add_manager_login(check)
    for name, summary, text in (
        ("cordon", "keep new workers away from a worker cluster", _CORDON_DESCRIPTION),
        ("uncordon", "allow new workers in a worker cluster again", _UNCORDON_DESCRIPTION),
    ):
        options.add_worker_cluster(add_verb(verbs, name, _run_cordon, summary, text, _CORDON_EPILOG.format(verb=name)))
    _add_drain(verbs)
    _add_preflight(verbs)


def _add_drain(verbs: VerbParsers) -> None:
    verb = add_verb(
        verbs, "drain", _run_drain, "move the workers out of a worker cluster", _DRAIN_DESCRIPTION, _DRAIN_EPILOG
    )
    options.add_worker_cluster(verb)
    options.add_wait(verb, "the cluster is empty")
    options.add_stream_output(verb)


def _add_preflight(verbs: VerbParsers) -> None:
    summary = "test whether workers could join from the worker clusters"
    verb = add_verb(verbs, "preflight", _run_preflight, summary, _PREFLIGHT_DESCRIPTION, _PREFLIGHT_EPILOG)
    verb.add_argument(
        "--worker-cluster",
        action="append",
        default=[],
        metavar="WORKERCLUSTER",
        help="test only this WorkerCluster and the manager; may be repeated (default: all)",
    )
    verb.add_argument("-n", "--namespace", default="", help="namespace where jobs would run (default: the context's)")
    verb.add_argument(
        "--queue",
        action="append",
        default=[],
        help="LocalQueue that must exist; may be repeated "
        "(default: those of the namespace whose jobs Rayspan dispatches)",
    )
    verb.add_argument(
        "--image", default="", help="image of the pods, which must contain python3 (default: the controller's image)"
    )
    verb.add_argument(
        "--timeout",
        type=options.parse_duration,
        default=timedelta(seconds=60),
        help="time limit for a pod to start, and then to answer (default: 60s)",
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
