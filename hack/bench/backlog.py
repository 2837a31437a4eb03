"""Brings a gang to the point where quota is reserved and its pods are still to be made, when we choose.

KubeRay makes pods one by one at its own pace, which would be measured instead of the dispatch. So KubeRay makes them
once while our controller is parked. Then KubeRay is parked, its pods are deleted, and their specs are handed out. Both
are the deployed ones, so the lab must have no other user meanwhile.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true, label, meta
from adapter.shell.kube.resources import PODS, WORKLOADS
from hack.bench import timeline
from hack.lab.cluster.addons import KUBERAY
from hack.testbed import deployment, install
from hack.testbed.deployment import parked
from hack.testbed.recorder import Place, Recorder
from hack.testbed.stage import Stage

CPU = "200m"  # of each worker: what KubeRay's init container asks for anyway
PATIENCE = 600.0  # seconds; KubeRay takes up to a minute for 1000 pods, and 15 s to take its lease over

_KEPT = ("name", "namespace", "labels", "annotations", "ownerReferences")


@contextmanager
def reserved(stage: Stage, seen: Recorder, job: str, workers: int, *, controller: bool) -> Iterator[list[Raw]]:
    """The worker pods, under other names, that a RayCluster with reserved quota and a running head lacks.

    Within the context KubeRay is parked, and so is our controller unless it is asked for.
    """
    manager = stage.manager
    with ExitStack() as back, ExitStack() as ours:
        with parked(manager, KUBERAY.deployment, KUBERAY.namespace):
            stage.ray_cluster(job, workers=workers, cpu=CPU)
            seen.wait(lambda now: _admitted(now, manager.name), PATIENCE, "the gang is admitted")
            ours.enter_context(parked(manager, install.CONTROLLER, names.SYSTEM_NAMESPACE))
        seen.poll(lambda now: _made(now, manager.name) == workers, PATIENCE, f"KubeRay has created {workers} pods")
        back.enter_context(parked(manager, KUBERAY.deployment, KUBERAY.namespace))
        pods = stage.workers()
        selector = f"{names.RAY_NODE_TYPE_LABEL}={names.WORKER}"
        manager.kubectl("-n", stage.name, "delete", "pods", "-l", selector, "--wait=false")
        seen.poll(lambda now: _made(now, manager.name) == 0, PATIENCE, "the pods that KubeRay made are gone")
        if controller:
            ours.close()
            deployment.wait_until_ready(manager)
        yield [again(pod) for pod in pods]


def again(pod: Raw) -> Raw:
    """The request body for a pod like this one, under a new name."""
    kept = {key: value for key, value in meta(pod).items() if key in _KEPT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept | {"name": f"{kept['name']}-2"}, "spec": pod["spec"]}


def _admitted(now: Mapping[Place, Raw], manager: str) -> bool:
    return any(
        is_condition_true(raw, names.ADMITTED) for (cluster, kind, _), raw in now.items()
        if cluster == manager and kind == WORKLOADS.plural
    )  # fmt: skip


def _made(now: Mapping[Place, Raw], manager: str) -> int:
    """How many worker pods there are once the head has an address, 0 before: without one nothing can be dispatched."""
    pods = [raw for (cluster, kind, _), raw in now.items() if cluster == manager and kind == PODS.plural]
    heads = (pod for pod in pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD)
    addressed = any((head.get("status") or {}).get("podIP") for head in heads)
    return sum(map(timeline.worker, pods)) if addressed else 0
