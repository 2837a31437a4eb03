"""How are the verbs about jobs typed: where one would go, where it is, why it waits, how it goes on, what its workers become?"""

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
)

_EXAMPLE_HEAD_ADDRESS: Final = "192.0.2.1"  # of the range that is kept for documentation (RFC 5737)

_PLAN_DESCRIPTION = """\
Says which worker clusters a RayJob or RayCluster would go to if it were submitted now, and why, without submitting it; of a
RayService, where the next RayCluster that KubeRay makes of it would go, beside all that runs, the one that serves now included.
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
  ASKED     who is asked first; "-" was not asked
  CHOSEN    how many workers it would get
  NOMINAL   how many fit into its free nominal quota; BORROWED: how many more with borrowed quota;
            EVER: how many if nothing else ran there, each worker group for itself
  USED      of the resource that is scarcest there, by everybody, with what other jobs were just promised
  FREE      of the same, borrowing included. `-o yaml` shows every resource in every flavor.
  PER HOUR  of the chosen workers, where the WorkerCluster names prices

What is not looked at: the manager's own quota, which the job needs first, and preemption, other than of those
who borrowed quota and of gangs of lower priority.
The job is taken for the youngest of its priority. A priority class (label {names.PRIORITY_CLASS_LABEL}) is known
only if another job has it already, else its priority is taken for 0. All worker groups are taken for remote ones.

exit code: 0 it fits, 3 it does not fit, 2 there is no job to plan, 1 nobody could be asked
"""
_WHERE_DESCRIPTION = """\
Shows where the head and the workers of a RayJob or RayCluster are, and how they are; of a RayService those of the RayCluster that
serves, and of the one that an upgrade waits for.
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
  ZONE      as Ray is told of it
  NODE      its name, and of a node in a worker cluster the address
  PHASE     of the pod; for one that is not well, why in a word
  RESTARTS  of its containers
  SINCE     for how long it has been ready, and before that for how long it has been there

It reads the manager cluster alone, with your rights: those of the ClusterRole view in the job's namespace are enough. Zones are in
WorkerClusters, which only administrators may read at first.

exit code: 0 it is shown, 2 there is no such job or the command line is wrong, 1 the manager cluster cannot be asked
"""
_WHY_DESCRIPTION = """\
Says which one link of its way keeps a RayJob or RayCluster from running, and what to do about it; of a RayService this of the
RayCluster that serves, and of the one that an upgrade waits for.
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

  Waits: 6 workers needed at once, 4 fit now: ... It starts by itself as soon as there is room.
  See Placement default/my-job-a9b41619.

The steps:
  Job             it is there, is not over, and has the label of its LocalQueue
  Workload        Kueue has made one, which is active and holds the manager's quota
  AdmissionCheck  those of the ClusterQueue are ready, and one of them is Rayspan's
  Placement       the worker clusters have room, and have admitted their shares
  Pods            KubeRay has made the pods, the head is ready, each worker has a slot, a copy and a node, and its containers start
  Ray             every worker has joined the head

What the link says is what stands on the object that is named. Where a job waits for room, the table of `kubectl rayspan plan`
follows, if you may ask for plans. It reads the manager cluster alone, with your rights: those of the ClusterRole view in the job's
namespace are enough. What could not be read is told.

exit code: 0 it runs or has succeeded, 3 it waits, 4 it is refused or has failed and needs somebody, 2 there is no such job or the
command line is wrong, 1 the manager cluster cannot be asked
"""
_WATCH_DESCRIPTION = """\
Shows a RayJob as it goes on, from the queue to its end: what `kubectl rayspan where` says of it, over and over. A RayCluster or a
RayService has no end of its own, and is shown until somebody deletes it.
"""
_WATCH_EPILOG = """\
example:
  kubectl rayspan watch my-job | cat
     0 s  RayJob default/my-job: Waits: 4 workers needed at once, 2 fit now. It starts by itself as soon as there is room.
     0 s  Waiting: 0 of 4 workers.
    12 s  Placed: 4 of 4 workers, 2 east, 2 west.
    14 s  manager: 1 head Pending
    21 s  east: 2 workers Running
    33 s  RayJob default/my-job: Done: It has succeeded.

On a terminal it draws one picture over and over; elsewhere it prints a line for each thing that changes. With `-o json` each line is the
document of `kubectl rayspan where -o json`, with the time at which it was found. It looks every other second, and while the manager cluster
cannot be asked it says so once and asks again. Ctrl-C stops the watching, and changes nothing. It needs the rights of `where`.

exit code: 0 the job has succeeded, or the RayCluster or RayService was deleted; 1 the job has failed, or was deleted before its end was seen, or
may not be read any more, or the watching was stopped; 2 there is no such job or the command line is wrong
"""
_RENDER_DESCRIPTION = """\
Shows Ray worker pods as they would be in a worker cluster, and as comments what was changed and why. Nothing is created,
and no cluster is asked.
"""
_RENDER_EPILOG = f"""\
example:
  kubectl get pods -l {names.RAY_NODE_TYPE_LABEL}={names.WORKER} -o yaml | kubectl rayspan render -f - --worker-cluster east.yaml
  kubectl rayspan render -f my-job.yaml > pods.yaml

The file holds worker pods as KubeRay made them, or RayJobs, RayClusters and RayServices: of those the worker templates are
shown, to which KubeRay adds the start command and the head's address later. What the share, the head and the WorkerCluster will
be is made up where it is not given: the head's address is {_EXAMPLE_HEAD_ADDRESS}, and the uid of the owner is zero.

exit code: 0 all of it can run in a worker cluster, 3 some of it is refused, 2 there is no worker pod in the file
"""


def add(verbs: VerbParsers) -> None:
    """Add them and their options to the command line."""
    _add_plan(verbs)
    add_job_options(
        add_verb(verbs, "where", _run_where, "show where the workers of a job are", _WHERE_DESCRIPTION, _WHERE_EPILOG)
    )
    add_job_options(
        add_verb(verbs, "why", _run_why, "say what keeps a job from running", _WHY_DESCRIPTION, _WHY_EPILOG)
    )
    watch = add_verb(
        verbs, "watch", _run_watch, "show a job as it goes on, until it has ended", _WATCH_DESCRIPTION, _WATCH_EPILOG
    )
    add_job_name(watch)
    add_stream_output(watch)
    add_manager_login(watch)
    _add_render(verbs)


def _add_plan(verbs: VerbParsers) -> None:
    summary = "say where a job's workers would go, without submitting it"
    verb = add_verb(verbs, "plan", _run_plan, summary, _PLAN_DESCRIPTION, _PLAN_EPILOG)
    verb.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar=FILE,
        help='file with one RayJob, RayCluster or RayService; "-" is the standard input',
    )
    verb.add_argument(
        "-n", "--namespace", default="", help="where it would be submitted (default: the file's, else the context's)"
    )
    add_output(verb)
    add_manager_login(verb)


def _add_render(verbs: VerbParsers) -> None:
    summary = "show what a worker pod would be in a worker cluster, and why"
    verb = add_verb(verbs, "render", _run_render, summary, _RENDER_DESCRIPTION, _RENDER_EPILOG)
    verb.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar=FILE,
        help='file with worker Pods, RayJobs, RayClusters or RayServices; "-" is the standard input',
    )
    verb.add_argument(
        "--worker-cluster", default="", metavar=FILE, help="file with the WorkerCluster that they would go to"
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


def _run_where(args: argparse.Namespace) -> int:
    from adapter.cli import where

    return where.main(args)


def _run_why(args: argparse.Namespace) -> int:
    from adapter.cli import why

    return why.main(args)


def _run_watch(args: argparse.Namespace) -> int:
    from adapter.cli import watch

    return watch.main(args)


def _run_render(args: argparse.Namespace) -> int:
    from adapter.cli import render

    return render.main(args)
