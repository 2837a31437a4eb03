"""A worker cluster whose etcd is restored from a backup: objects of then come back, and those since then are gone.

The API server's watches end. Versions count on from the backup, or from far above all before (`--bump-revision`). The
kubelets stop pods that are not in the backup, tell the state of those that are, and start those again that had ended.
"""

from collections.abc import Mapping

from adapter.objects.unstructured import Key, Raw, is_condition_true, meta
from adapter.objects.worker_pod import has_ended, is_deleting
from adapter.shell.kube import resources
from hack.simulation.apiserver import ApiServer
from hack.simulation.kubelet import Kubelet

WRITER = "restore"
_BUMP = 1_000_000  # versions that a restore may skip
Backup = tuple[int, dict[str, dict[Key, Raw]]]  # the version, and the objects of each kind


def restore(server: ApiServer, kubelet: Kubelet, backup: Backup, *, bump: bool) -> None:
    """Bring a backup back."""
    pods = {meta(pod)["uid"]: pod for pod in server.all(resources.PODS)}
    version, objects = backup
    server.restore(objects, server.newest + _BUMP if bump else version, WRITER)
    for pod in server.all(resources.PODS):
        _resume(server, kubelet, pod, pods)


def _resume(server: ApiServer, kubelet: Kubelet, pod: Raw, before: Mapping[str, Raw]) -> None:
    """Have the kubelet go on with a pod of the backup."""
    running = before.get(meta(pod)["uid"])
    if running is not None and running["spec"].get("nodeName") and not is_deleting(running):
        server.patch(resources.PODS, pod, {"status": running["status"]}, "kubelet")
    elif is_deleting(pod) or (running is not None and is_deleting(running)):
        server.delete(resources.PODS, pod, "kubelet")
        kubelet.finish(pod)
    elif not has_ended(pod):
        if is_condition_true(pod, "Ready"):
            kubelet.unready(pod)  # its containers are gone, and start again
        kubelet.resume(pod)
