"""Measures how fast stock MultiKueue dispatches Jobs on the lab, and what they cost: figures beside `dispatch`.

Nothing is promised of them. A hundred Jobs with a pod each are dispatched one by one, as our workers are. One Job with
a hundred pods is dispatched once, into one cluster. MultiKueue shows no pods in the manager, so a pod counts when it
runs in a worker cluster; ours count a step later. On fake nodes the pods of a Job end at once: the cost is counted
until the manager knows that all Jobs are complete. Kueue is restarted in all clusters, so the lab must have no other
user.
"""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import yaml

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import PODS, Resource
from hack.bench import backlog, promises
from hack.bench.promises import Found
from hack.bench.report import Figures, Requests, Run
from hack.lab.base import lab as definition
from hack.lab.base.progress import step
from hack.testbed import audit, deployment, figures, multikueue, procstat
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.recorder import Change, Place, Recorder
from hack.testbed.stage import FAKE_NODE, TOLERATION, Stage, local_queue

NAME = "multikueue"
HELP = "Jobs by stock MultiKueue on the same lab: figures to put beside those of dispatch"

_SHAPES = ((100, 1), (1, 100))  # of Jobs, and pods of each
_QUOTA = 64  # CPUs of each cluster, all that its two fake nodes have
_KUEUE = "kueue-controller-manager"  # its account in the manager
_JOBS = Resource("batch/v1", "jobs")
_QUEUE = "jobs"
# Seconds for a hundred Jobs to complete or be deleted: several times what they take on two busy cores.
_PATIENCE = 300.0
_SEEN = 90.0  # seconds until MultiKueue sees its clusters: the tests' patience


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the lines for programs, and figures for comparison."""
    fleet = deployment.on_lab(renew=asked.renew)
    with multikueue.working(fleet):
        found = [_shape(fleet, jobs, pods) for jobs, pods in _SHAPES]
    print("\n" + figures.table(list(found[0]), [list(one.values()) for one in found]))
    rows = [promises.rows(NAME, _about(one), one, promises.MULTIKUEUE) for one in found]
    return Found([figures.line(NAME, one) for one in found], [row for each in rows for row in each])


def times(changes: Sequence[Change], manager: str) -> Figures:
    """Seconds count from the first Job that the manager has."""
    begun = min(one.at for one in changes if one.cluster == manager)
    ran, complete = dict[str, float](), dict[str, float]()
    for one in changes:
        if one.after and one.cluster != manager and _runs(one.after):
            ran.setdefault(one.name, one.at - begun)
        elif one.after and one.cluster == manager and _complete(one.after):
            complete.setdefault(one.name, one.at - begun)
    total = figures.percentile(list(ran.values()), 100)
    told = figures.percentile(list(complete.values()), 100)
    return {"pods_s": figures.ratio(len(ran), total), "total_s": total, "complete_s": told}


def cost(pods: int, manager: str, requests: Requests, *, cpu_s: float, lab_cpu_s: float) -> Figures:
    """The cost of each pod. The manager's Kueue and its requests do not tell MultiKueue's part from the rest."""
    run = Run(manager, {}, requests, {})
    own = {manager: _KUEUE, **{cluster: multikueue.ACCOUNT for cluster in requests if cluster != manager}}
    mine = {cluster: [one for one in asked if one.kind.client == own[cluster]] for cluster, asked in requests.items()}
    return {
        "kueue_manager": run.count(mine, here=True) / pods,
        "kueue_workers": run.count(mine, here=False) / pods,
        "all_manager": run.count(requests, here=True) / pods,
        "all_workers": run.count(requests, here=False) / pods,
        "cpu_ms": cpu_s * 1000 / pods,
        "lab_cpu_ms": lab_cpu_s * 1000 / pods,
    }


def _about(values: Mapping[str, figures.Value]) -> str:
    jobs, pods = int(values["jobs"]), int(values["pods"])
    return f"{jobs} Jobs of one pod" if jobs > 1 else f"one Job of {pods} pods"


def _shape(fleet: Clusters, jobs: int, pods: int) -> dict[str, figures.Value]:
    with _stage(fleet, jobs) as stage, step(f"multikueue: {jobs} Jobs, {pods} pods in each"):
        measured = _measured(stage, jobs, pods)
    return {"jobs": jobs, "pods": jobs * pods, **measured}


def _measured(stage: Stage, jobs: int, pods: int) -> Figures:
    manager, lab = stage.manager.name, definition.load()
    what = {stage.manager: (_JOBS,), **{stage.fleet.workers[name]: (PODS,) for name in stage.clusters}}
    with Recorder(stage.name, what) as seen:
        logs = {cluster.name: audit.Log(cluster.audit_log) for cluster in lab.clusters}
        own, every = procstat.kueue(lab.manager), procstat.lab()
        before, lab_before = procstat.cpu(own), procstat.cpu(every)
        asyncio.run(_submit(stage, [job(f"job-{number}", stage.name, pods) for number in range(jobs)]))
        done = partial(_all_complete, manager=manager, jobs=jobs)
        seen.poll(done, _PATIENCE, f"the manager knows that {jobs} Jobs are complete")
        spent = {"cpu_s": procstat.cpu(own) - before, "lab_cpu_s": procstat.cpu(every) - lab_before}
        requests = {c: audit.about(log.take(), stage.name, without=audit.MEASURING) for c, log in logs.items()}
        found = times(seen.changes, manager)
        stage.manager.kubectl("-n", stage.name, "delete", "jobs", "--all", "--wait=false")
        seen.poll(lambda now: not now, _PATIENCE, "all Jobs and their pods are gone")
    return {**found, **cost(jobs * pods, manager, requests, **spent)}


def _all_complete(now: Mapping[Place, Raw], *, manager: str, jobs: int) -> bool:
    return sum(_complete(raw) for (cluster, _, _), raw in now.items() if cluster == manager) == jobs


def _complete(found: Raw) -> bool:
    return is_condition_true(found, "Complete")


def _runs(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded")


def job(name: str, namespace: str, pods: int) -> Raw:
    """A stock Job in the queue, on fake nodes."""
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": backlog.CPU}}}
    pod = {"restartPolicy": "Never", "nodeSelector": FAKE_NODE, "tolerations": [TOLERATION], "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.QUEUE_LABEL: _QUEUE}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod}},
    }


async def _submit(stage: Stage, bodies: Sequence[Raw]) -> None:
    """All at once, as the script of `dispatch` makes its pods."""
    client = await Client.from_kubeconfig(stage.manager.kubeconfig.read_text(encoding="utf-8"))
    try:
        await asyncio.gather(*(client.create(_JOBS.path(stage.name), body) for body in bodies))
    finally:
        await client.close()


# --- what MultiKueue needs -------------------------------------------------------------------------------------------


@contextmanager
def _stage(fleet: Clusters, jobs: int) -> Iterator[Stage]:
    """Queues with ample quota in two clusters, which MultiKueue reaches by its own account; all of it is deleted
    afterwards.
    """
    with Stage(fleet, f"bench-{NAME}-{jobs}", tuple(fleet.workers)[:2]) as stage, ExitStack() as stack:
        stage.build(dict.fromkeys(stage.clusters, _QUOTA))
        mine = [_known(stage, name, stack) for name in stage.clusters]
        _queue(stage, mine)
        yield stage


def _known(stage: Stage, name: str, stack: ExitStack) -> str:
    """Make a worker cluster known to MultiKueue; returns what it is called there."""
    manager, own = stage.manager, f"{stage.name}-{name}"
    kubeconfig = stack.enter_context(multikueue.account(stage.fleet, name))
    stack.callback(manager.delete, "secret", own, names.KUEUE_NAMESPACE)
    multikueue.put_secret(manager, own, kubeconfig)
    return stage.add(manager, "MultiKueueCluster", {"spec": multikueue.cluster(own, own)["spec"]}, own)


def _queue(stage: Stage, mine: Sequence[str]) -> None:
    """A queue for Jobs: with MultiKueue's check in the manager, and to the stage's queue in the worker clusters."""
    manager = stage.manager
    config = stage.add(manager, "MultiKueueConfig", {"spec": multikueue.config("", *mine)["spec"]})
    parameters = {"apiGroup": names.KUEUE_DOMAIN, "kind": "MultiKueueConfig", "name": config}
    spec: Raw = {"controllerName": multikueue.CHECK_CONTROLLER, "parameters": parameters}
    check = stage.add(manager, "AdmissionCheck", {"spec": spec}, f"{stage.name}-mk")
    room = {"name": stage.name, "resources": [{"name": "cpu", "nominalQuota": "1000"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [room]}]}
    spec |= {"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}}
    queue = stage.add(manager, "ClusterQueue", {"spec": spec}, f"{stage.name}-jobs")
    leads: dict[Cluster, str] = {manager: queue}
    leads |= {stage.fleet.workers[name]: stage.name for name in stage.clusters}
    for cluster, target in leads.items():
        cluster.apply(yaml.safe_dump(local_queue(_QUEUE, stage.name, target)))
    for kind, name in [*(("multikueueclusters", one) for one in mine), ("clusterqueues", queue)]:
        manager.wait(partial(multikueue.active, manager, kind, name), _SEEN, f"{name} is active")
