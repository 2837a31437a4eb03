"""How does a gang come to stand with all of its pods made, gated and with room reserved, and with nobody to dispatch them?

KubeRay makes pods one after the other, at a pace of its own, which would be measured instead of the dispatch. So one after the
other is parked: KubeRay while the gang is admitted, then our controller while KubeRay makes the pods. Both are the deployed
ones, so nobody else may use the lab meanwhile.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from adapter import names
from adapter.facts import Raw, is_true, label
from adapter.shell.resources import PODS, WORKLOADS
from hack import install
from hack.bench import timeline
from hack.bench.recorder import Place, Recorder
from hack.clusters import Cluster
from hack.lab.addons import KUBERAY
from hack.lab.progress import LabError
from tests.integration.stage import Stage

CPU = "200m"  # of each worker: what the init container that KubeRay adds asks for anyway
PATIENCE = 600.0  # seconds; KubeRay takes up to a minute for 1000 pods, and 15 s to take its lease over


@contextmanager
def standing(stage: Stage, seen: Recorder, job: str, workers: int) -> Iterator[None]:
    """A RayCluster of so many workers that wait for their dispatch; at the end of the context the controller comes back."""
    manager = stage.manager
    with ExitStack() as later:
        with parked(manager, KUBERAY.deployment, KUBERAY.namespace):
            stage.ray_cluster(job, workers=workers, cpu=CPU)
            seen.wait(lambda now: _admitted(now, manager.name), PATIENCE, "the gang is admitted")
            later.enter_context(parked(manager, install.CONTROLLER, names.SYSTEM_NAMESPACE))
        seen.poll(lambda now: _made(now, manager.name) == workers, PATIENCE, f"KubeRay has made {workers} pods")
        yield


@contextmanager
def parked(cluster: Cluster, deployment: str, namespace: str) -> Iterator[None]:
    """Within, no pod of a deployment is there. At the end it gets back as many as it had; nobody waits for them."""
    found = cluster.get("deployment", deployment, namespace)
    if not found:
        raise LabError(f"{cluster.name}: there is no deployment {namespace}/{deployment}.")
    selector = ",".join(f"{key}={value}" for key, value in found["spec"]["selector"]["matchLabels"].items())
    try:
        _scale(cluster, deployment, namespace, 0)
        cluster.wait(lambda: not cluster.items("pods", namespace, selector), PATIENCE, f"{deployment} is gone")
        yield
    finally:
        _scale(cluster, deployment, namespace, found["spec"]["replicas"] or 1)


def _scale(cluster: Cluster, deployment: str, namespace: str, replicas: int) -> None:
    cluster.kubectl("-n", namespace, "scale", "deployment", deployment, f"--replicas={replicas}")


def _admitted(now: Mapping[Place, Raw], manager: str) -> bool:
    return any(
        is_true(raw, names.ADMITTED) for (cluster, kind, _), raw in now.items()
        if cluster == manager and kind == WORKLOADS.plural
    )  # fmt: skip


def _made(now: Mapping[Place, Raw], manager: str) -> int:
    """How many worker pods there are once the head has an address, 0 before: without one nothing can be dispatched."""
    pods = [raw for (cluster, kind, _), raw in now.items() if cluster == manager and kind == PODS.plural]
    heads = (pod for pod in pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD)
    addressed = any((head.get("status") or {}).get("podIP") for head in heads)
    return sum(map(timeline.worker, pods)) if addressed else 0
