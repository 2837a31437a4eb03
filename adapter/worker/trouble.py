"""Why does a copy not run as it should, in its own cluster's words? For the one event on the job that its user reads.

A pod that only takes its time is no trouble. What becomes of it is that cluster's and KubeRay's business.
"""

from collections.abc import Iterator
from typing import Any

from adapter.objects.raw import Raw, condition

# Reasons with which a kubelet waits because something is wrong, beside those that end so (k8s:pkg/kubelet/images/types.go,
# pkg/kubelet/kuberuntime/kuberuntime_container.go).
_WRONG = ("BackOff", "Error", "InvalidImageName", "ErrImagePull", "ErrImageNeverPull")


def sentence(remote: Raw, cluster: str) -> str:
    """What is wrong with a remote pod, empty when nothing is; without the pod's name, since its siblings have it too."""
    return next(_found(remote, cluster), "")


def _found(remote: Raw, cluster: str) -> Iterator[str]:
    for status in _containers(remote):
        name, state = status.get("name"), status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (status.get("lastState") or {}).get("terminated") or {}
        if "OOMKilled" in (ended.get("reason"), before.get("reason")):
            yield f"Container {name} of a worker in {cluster} was killed for want of memory (OOMKilled); raise its memory limit."
        if str(waiting.get("reason") or "").endswith(_WRONG):
            # Of a back-off the kubelet says only for how long, and which pod: not what its siblings would say.
            tells = waiting.get("message") and not str(waiting["reason"]).endswith("BackOff")
            said = f": {waiting['message']}" if tells else ""
            yield f"Container {name} of a worker in {cluster} does not start, {waiting['reason']}{said}"
    scheduled = condition(remote, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        yield f"A worker in {cluster} finds no node: {scheduled.get('message') or 'Unschedulable'}"


def _containers(remote: Raw) -> Iterator[dict[str, Any]]:
    status = remote.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(field) or ()
