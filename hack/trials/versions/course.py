"""Tries one pair: a RayJob with real Ray over both clusters, a lost worker that is replaced, and nothing left behind.

It runs on clusters that are up. It tries one gang only: the other tests cover all further features with today's
versions.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError, step
from hack.lab.base.versions import Runs
from hack.lab.cluster import addons
from hack.testbed import rayspec
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.rayjob import SAMPLE, Job, removed
from hack.testbed.stage import Stage, pods_by_cluster
from hack.trials.versions.rows import Check

SPANS = "a RayJob with real Ray on real kubelets succeeded, with a worker in each cluster"
RETURNS = "a gang ran on fake nodes with a worker in each cluster, and the one that was lost in `west` was replaced"
LEAVES = "the gang was deleted, and nothing was left in any cluster"
ALL = (RETURNS, LEAVES, SPANS)

_NAME = "versions"
_WORKERS = {"east": 1, "west": 1}
_WORD = "RAY-VERSION"
_SECONDS = 120.0  # for what takes five on an idle machine


def seen(fleet: Clusters, lab: Lab) -> dict[str, Runs]:
    """The versions that each cluster reports; raises LabError where they are not the requested ones."""
    found = {cluster.name: _runs(cluster) for cluster in fleet.all}
    for cluster in lab.clusters:
        wanted = cluster.runs if cluster.is_manager else cluster.runs._replace(kuberay="")
        if found[cluster.name] != wanted:
            raise LabError(
                f"{cluster.name} was asked to run {_said(wanted)}, and says that it runs {_said(found[cluster.name])}."
            )
    return found


def run(fleet: Clusters, checks: list[Check], *, ray: str) -> None:
    """Try everything on clusters with Rayspan: a job of this version of Ray, or all else where none is named.

    Successes are added to `checks`. Raises LabError at the first failure, and where the job reports another Ray.
    """
    with Stage(fleet, _NAME) as stage:
        stage.build(_WORKERS)
        with _tried(RETURNS, checks):
            _lose(stage)
        with _tried(LEAVES, checks):
            _leave(stage)
    if ray:
        with _tried(SPANS, checks), removed(Job(fleet, _NAME, 2, apart=True)) as job:
            _span(job, ray)


def _span(job: Job, version: str) -> None:
    job.submit(_telling(), lambda spec: rayspec.with_ray(spec, version))
    ended = job.wait_for_end()
    if ended != "SUCCEEDED":
        raise LabError(f"The RayJob ended as {ended}: {job.output()[-500:]}")
    found, ran = job.result(), job.said(_WORD)
    if ran != version:
        raise LabError(f"The RayJob was to run Ray {version}, and says that it ran {ran}.")
    where = sorted((node["cluster"], node["zone"]) for node in found["nodes"] if not node["head"])
    if not found["ok"] or where != [("east", "east"), ("west", "west")]:
        raise LabError(f"The RayJob's workers were not one in each cluster, with its zone: {found}.")


def _telling() -> str:
    """The sample's program, which tells its Ray's version in the end."""
    (code,) = (one for one in yaml.safe_load_all(SAMPLE.read_text()) if one["kind"] == "ConfigMap")
    (program,) = code["data"].values()
    return f'{program}\nprint("{_WORD} " + json.dumps(ray.__version__))\n'


def _lose(stage: Stage) -> None:
    """Delete the copy in one cluster: its pod in the manager fails, KubeRay makes another one, and that runs there."""
    stage.ray_cluster(_NAME, workers=2)
    wait(lambda: stage.running(2), _SECONDS, "both workers run", lambda: stage.reason(_NAME))
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    (lost,) = stage.remote()["west"]
    stage.fleet.workers["west"].delete("pod", lost["metadata"]["name"], stage.name)
    wait(
        lambda: stage.running(2) and _replaced(stage, before),
        _SECONDS,
        "the lost worker is replaced",
        lambda: stage.reason(_NAME),
    )


def _leave(stage: Stage) -> None:
    def gone() -> bool:
        return not stage.leftovers() and not stage.reserving()

    stage.manager.delete("raycluster", _NAME, stage.name, wait=False)
    wait(gone, _SECONDS, "nothing is left", lambda: str(stage.leftovers()))


def _replaced(stage: Stage, before: set[str]) -> bool:
    """One in each cluster again, and one of them new."""
    now = stage.workers()
    return pods_by_cluster(now) == _WORKERS and len(before - {pod["metadata"]["uid"] for pod in now}) == 1


def _runs(cluster: Cluster) -> Runs:
    """Versions of the API server, which must be the kubelet's, and of running images; KubeRay is empty where there is
    none.
    """
    server = str(cluster.reader.get("/version")["gitVersion"])
    kubelets = {
        node["status"]["nodeInfo"]["kubeletVersion"]
        for node in cluster.items("nodes")
        if node["metadata"]["name"] == cluster.name
    }
    if kubelets != {server}:
        raise LabError(
            f"{cluster.name}: the API server is {server}, "
            f"and the node's kubelet {', '.join(sorted(kubelets)) or 'is not there'}."
        )
    return Runs(server, _image(cluster, addons.KUEUE), _image(cluster, addons.KUBERAY))


def _image(cluster: Cluster, addon: addons.Addon) -> str:
    """The version in the name of the image that a Deployment's pods have, empty where there is no such Deployment."""
    found = cluster.get("deployments", addon.deployment, addon.namespace)
    containers = found["spec"]["template"]["spec"]["containers"] if found else []
    return str(containers[0]["image"]).rpartition(":")[2] if containers else ""


def _said(runs: Runs) -> str:
    return ", ".join(f"{component} {version}" for component, version in runs._asdict().items() if version)


@contextmanager
def _tried(what: str, checks: list[Check]) -> Iterator[None]:
    begun = time.monotonic()
    with step(what):
        yield
    checks.append(Check(what, round(time.monotonic() - begun, 1)))
