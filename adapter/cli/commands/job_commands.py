"""Verbs about jobs: plan, list, where, why, watch, move and render."""

import argparse
from typing import Final

from adapter import names
from adapter.cli.commands.options import (
    FILE,
    VerbParsers,
    add_job_name,
    add_job_options,
    add_manager_login,
    add_output,
    add_stream_output,
    add_verb,
    add_wait,
    parse_cluster_name,
)

_EXAMPLE_HEAD_ADDRESS: Final = "192.0.2.1"  # reserved for documentation (RFC 5737)

_PLAN_DESCRIPTION = """\
Show to which worker clusters the workers of a RayJob or RayCluster would go if it were submitted now, and why. The job
is not submitted. For a RayService, the plan is for the next RayCluster that KubeRay would create, in addition to all
that run, including the active one.
"""
_PLAN_EPILOG = f"""\
example:
  kubectl rayspan plan -f my-job.yaml
  RayJob default/my-job: 4 workers of group workers, each cpu 1, memory 2Gi
  LocalQueue ray, DispatchPolicy everywhere: FillInOrder, AllOrNothing

  ASKED   CLUSTER   CHOSEN   NOMINAL   BORROWED   EVER   USED    FREE    PER HOUR   WHY
  1       east      2        2         0          4      cpu 6   cpu 2   0.24       no more fit: cpu in flavor ray: ...
  2       west      2        4         0          4      cpu 0   cpu 8   0.20       -

  Fits: 2 of 4 workers to east, 2 to west.
  Price per hour: 0.44.

columns:
  ASKED     the order in which the clusters are considered; "-" if a cluster is not considered
  CHOSEN    the number of workers that it would get
  NOMINAL   how many workers fit into its free nominal quota; BORROWED: how many more with borrowed quota;
            EVER: how many if nothing else ran there, for each worker group alone
  USED      of the scarcest resource there, by all jobs, including quota that was just promised to other jobs
  FREE      of the same resource, including quota that may be borrowed. `-o yaml` shows every resource in every flavor.
  PER HOUR  the price of the chosen workers, if the WorkerCluster has prices
  IF ALL    with strategy Cheapest: the price of all workers of the job in that cluster, which ASKED follows

The plan does not include the manager's own quota, which the job needs first. Of preemption, it includes only that of
Workloads that borrowed quota and of gangs of lower priority.
The job counts as the newest of its priority. A priority class (label {names.PRIORITY_CLASS_LABEL}) is known
only if another job already has it; otherwise the priority counts as 0. All worker groups count as remote.

exit code: 0 it fits, 3 it does not fit, 2 there is no job to plan, 1 the controller gave no plan
"""
_LIST_DESCRIPTION = """\
List the RayJobs, RayClusters and RayServices that have a queue, with their state and the clusters of their workers.
"""
_LIST_EPILOG = """\
example:
  kubectl rayspan list
  NAME      KIND         QUEUE   STATE   WORKERS   CLUSTERS         AGE
  train     RayJob       ray     Runs    4/4       2 east, 2 west   12m
  tune      RayJob       ray     Waits   0/6       -                3m
  serving   RayService   ray     Runs    2/2       2 east           4d

columns:
  STATE     Runs, Waits, Refused, Done or Failed, as `kubectl rayspan why` says it; `-o wide` adds its sentence
  WORKERS   those with quota in a worker cluster, of those that the job wants
  CLUSTERS  where these workers are

A RayCluster that a RayJob or a RayService owns has no row of its own. This command reads only the manager cluster, with
your rights: the ClusterRole view in the namespace is enough. The output names what could not be read.

exit code: 0 the jobs are listed, 2 the command line is wrong, 1 the manager cluster cannot be reached
"""
_WHERE_DESCRIPTION = """\
Show where the head and the workers of a RayJob or RayCluster run, and their state. For a RayService, show those of the
active RayCluster and of the pending one of an upgrade.
"""
_WHERE_EPILOG = """\
example:
  kubectl rayspan where my-job
  NAME                              CLUSTER   ZONE         NODE          PHASE     RESTARTS   SINCE
  RayJob default/my-job
  └─ RayCluster my-job-x7k2p
     ├─ my-job-x7k2p-head-6t9vq     manager   -            node-1        Running   0          5m
     ├─ east
     │  ├─ my-job-x7k2p-w-worker-a  east      us-east-1a   10.1.0.4      Running   0          4m
     │  └─ my-job-x7k2p-w-worker-b  east      us-east-1a   10.1.0.5      Running   0          4m
     └─ west
        └─ my-job-x7k2p-w-worker-c  west      us-west-2b   10.2.0.4      Running   1          4m

  Placed: 3 of 3 workers, 2 east, 1 west.
  Runs: Its head runs, and all of its 3 workers have joined. The job is RUNNING.

columns:
  ZONE      the zone that Ray uses
  NODE      the node's name, or the address of a node in a worker cluster
  PHASE     the pod's phase, or the reason of its problem
  RESTARTS  of its containers
  SINCE     how long the pod has been ready, or how long it has existed if it is not ready

This command reads only the manager cluster, with your rights: the ClusterRole view in the job's namespace is enough.
Zones are in WorkerClusters, which by default only administrators may read.

exit code: 0 the job is shown, 2 there is no such job or the command line is wrong,
1 the manager cluster cannot be reached
"""
_WHY_DESCRIPTION = """\
Show which step keeps a RayJob or RayCluster from running, and what to do about it. For a RayService, show this for the
active RayCluster and for the pending one of an upgrade.
"""
_WHY_EPILOG = """\
example:
  kubectl rayspan why my-job
  RayJob default/my-job

  STEP             STATE
  Job              ok
  Workload         ok
  AdmissionCheck   ok
  Placement        Waits
  Pods             -
  Ray              -

  Waits: 6 workers needed at once, 4 fit now: ... It starts by itself as soon as there is capacity.
  See Placement default/my-job-a9b41619.

The steps:
  Job             it exists, has not ended, and has the label of its LocalQueue
  Workload        Kueue has created it; it is active and holds the manager's quota
  AdmissionCheck  all checks of the ClusterQueue are ready, and one of them is Rayspan's
  Placement       the worker clusters have capacity, and have admitted their shares
  Pods            KubeRay has created the pods, the head is ready, each worker has a slot, a remote pod and a node, and
                  its containers start
  Ray             every worker has joined the head

The message comes from the object that is named. For a job that waits for capacity, the table of `kubectl rayspan plan`
follows, if you may ask for plans. This command reads only the manager cluster, with your rights: the ClusterRole view
in the job's namespace is enough. The output names what could not be read.

exit code: 0 the job runs or has succeeded, 3 it waits, 4 it is rejected or has failed and does not go on without a
change, 2 there is no such job or the command line is wrong, 1 the manager cluster cannot be reached
"""
_WATCH_DESCRIPTION = """\
Watch a RayJob from the queue until it ends: show the output of `kubectl rayspan where`, and update it. A RayCluster or
RayService does not end by itself, and is watched until it is deleted.
"""
_WATCH_EPILOG = """\
example:
  kubectl rayspan watch my-job | cat
     0 s  RayJob default/my-job: Waits: 4 workers needed at once, 2 fit now. It starts by itself as soon as there is \
capacity.
     0 s  Waiting: 0 of 4 workers.
    12 s  Placed: 4 of 4 workers, 2 east, 2 west.
    14 s  manager: 1 head Pending
    21 s  east: 2 workers Running
    33 s  RayJob default/my-job: Done: It has succeeded.

On a terminal the output is redrawn in place; elsewhere a line is printed for each change. With `-o json`, each line is
the document of `kubectl rayspan where -o json` with the time of the observation. The command polls every two seconds.
While the manager cluster cannot be reached, it says so once and tries again. Ctrl-C stops this command and changes
nothing. The command needs the rights of `where`.

exit code: 0 the job has succeeded, or the RayCluster or RayService was deleted; 1 the job has failed, was deleted
before its end was observed, or may no longer be read, or the command was stopped; 2 there is no such job or the command
line is wrong
"""
_MOVE_DESCRIPTION = f"""\
Move the workers of one RayJob, RayCluster or RayService out of worker clusters, a few at a time (spec.maxUnavailable of
the WorkerCluster), and keep new ones away. Other jobs stay. A worker finishes its running tasks if its grace period is
long enough, and is replaced in another cluster that has capacity. A worker is moved only when there is capacity for it.

The command writes the annotation {names.MOVE_FROM_ANNOTATION} of the job. While it is there, the workers keep away.
"""
_MOVE_EPILOG = """\
example:
  kubectl rayspan move train --from east
  rayjob/train moving from east
  RayJob default/train: 2 workers left; 2 of 4 workers to east, 2 to west.
  RayJob default/train: 1 worker left; 1 of 4 workers to east, 3 to west.
  RayJob default/train: no worker left
  rayjob/train moved from east

With `-o json`, each line has the number of workers that are left, whenever that changes. Ctrl-C stops this command, not
the move. The same command watches the move again, and `--cancel` stops it: workers may go there again, and those that
were moved stay where they are now.

Without workers there from the beginning, the command waits for 10 seconds before it succeeds: until the controller has
observed the annotation, it may still assign workers to these clusters.

You need the rights to read and to patch the job; for a RayService, also to list and to patch RayClusters, since each of
its RayClusters has the annotation. To watch, you need the ClusterRole view in the namespace as well. If you may not
read WorkerClusters, the controller's event reports one that does not exist.

exit code: 0 no worker is left there, 2 there is no such job or the command line is wrong, 1 any other failure
"""
_RENDER_DESCRIPTION = """\
Show Ray worker pods as they would be in a worker cluster, with a comment for each change and its reason. Nothing is
created, and no request is sent to a cluster.
"""
_RENDER_EPILOG = f"""\
example:
  kubectl get pods -l {names.RAY_NODE_TYPE_LABEL}={names.WORKER} -o yaml | kubectl rayspan render -f - \
--worker-cluster east.yaml
  kubectl rayspan render -f my-job.yaml > pods.yaml

The file has worker pods as KubeRay created them, or RayJobs, RayClusters and RayServices. Of the latter, the worker
templates are shown; KubeRay adds the start command and the head's address later. Values of the share, the head and the
WorkerCluster that are not given are examples: the head's address is {_EXAMPLE_HEAD_ADDRESS},
and the owner's uid is zero.

exit code: 0 all pods can run in a worker cluster, 3 some of them are rejected, 2 there is no worker pod in the file
"""


def add(verbs: VerbParsers) -> None:
    """Add the verbs and their options."""
    _add_plan(verbs)
    _add_list(verbs)
    add_job_options(
        add_verb(verbs, "where", _run_where, "show where the workers of a job run", _WHERE_DESCRIPTION, _WHERE_EPILOG)
    )
    add_job_options(
        add_verb(verbs, "why", _run_why, "show what keeps a job from running", _WHY_DESCRIPTION, _WHY_EPILOG)
    )
    watch = add_verb(verbs, "watch", _run_watch, "watch a job until it ends", _WATCH_DESCRIPTION, _WATCH_EPILOG)
    add_job_name(watch)
    add_stream_output(watch)
    add_manager_login(watch)
    _add_move(verbs)
    _add_render(verbs)


def _add_move(verbs: VerbParsers) -> None:
    summary = "move the workers of one job out of a worker cluster"
    verb = add_verb(verbs, "move", _run_move, summary, _MOVE_DESCRIPTION, _MOVE_EPILOG)
    add_job_name(verb)
    verb.add_argument(
        "--from",
        action="append",
        default=[],
        dest="clusters",
        type=parse_cluster_name,
        metavar="WORKERCLUSTER",
        help="WorkerCluster that the workers are to leave; may be repeated",
    )
    verb.add_argument(
        "--cancel", action="store_true", help="stop the move from these WorkerClusters (default: from all)"
    )
    add_wait(verb, "no worker is left there")
    add_stream_output(verb)
    add_manager_login(verb)


def _add_plan(verbs: VerbParsers) -> None:
    summary = "show where a job's workers would go, without submitting it"
    verb = add_verb(verbs, "plan", _run_plan, summary, _PLAN_DESCRIPTION, _PLAN_EPILOG)
    verb.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar=FILE,
        help='file with one RayJob, RayCluster or RayService; "-" is the standard input',
    )
    verb.add_argument(
        "-n", "--namespace", default="", help="namespace to plan for (default: the file's, else the context's)"
    )
    add_output(verb)
    add_manager_login(verb)


def _add_list(verbs: VerbParsers) -> None:
    verb = add_verb(verbs, "list", _run_list, "list jobs, their states and clusters", _LIST_DESCRIPTION, _LIST_EPILOG)
    scope = verb.add_mutually_exclusive_group()
    scope.add_argument("-n", "--namespace", default="", help="namespace of the jobs (default: the context's)")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="list the jobs of all namespaces")
    verb.add_argument("-l", "--selector", default="", help="label selector of the jobs, such as team=vision")
    verb.add_argument(
        "-o",
        "--output",
        choices=("table", "wide", "name", "json", "yaml"),
        default="table",
        help="output format (default: table)",
    )
    add_manager_login(verb)


def _add_render(verbs: VerbParsers) -> None:
    summary = "show how a worker pod would change in a worker cluster, and why"
    verb = add_verb(verbs, "render", _run_render, summary, _RENDER_DESCRIPTION, _RENDER_EPILOG)
    verb.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar=FILE,
        help='file with worker Pods, RayJobs, RayClusters or RayServices; "-" is the standard input',
    )
    verb.add_argument(
        "--worker-cluster", default="", metavar=FILE, help="file with the WorkerCluster where the pods would run"
    )
    verb.add_argument(
        "--head",
        default=_EXAMPLE_HEAD_ADDRESS,
        metavar="ADDRESS",
        help=f"the head's address (default {_EXAMPLE_HEAD_ADDRESS})",
    )


def _run_plan(args: argparse.Namespace) -> int:
    from adapter.cli import plan

    return plan.main(args)


def _run_list(args: argparse.Namespace) -> int:
    from adapter.cli import job_table

    return job_table.main(args)


def _run_where(args: argparse.Namespace) -> int:
    from adapter.cli import where

    return where.main(args)


def _run_why(args: argparse.Namespace) -> int:
    from adapter.cli import why

    return why.main(args)


def _run_watch(args: argparse.Namespace) -> int:
    from adapter.cli import watch

    return watch.main(args)


def _run_move(args: argparse.Namespace) -> int:
    from adapter.cli import move

    return move.main(args)


def _run_render(args: argparse.Namespace) -> int:
    from adapter.cli import render

    return render.main(args)
