"""A small model of Kueue's waitForPodsReady: the condition PodsReady, and the clock that evicts while it is False.

It counts from the admission until all pods were ready once, and then from the first pod that is not ready
(kueue:pkg/controller/core/workload_controller.go, admittedNotReadyWorkload).
"""

from collections.abc import Callable, Iterable
from datetime import timedelta

from adapter import names
from adapter.objects.unstructured import Raw, annotation, condition, condition_true_since, is_condition_true, parse_time
from adapter.shell.kube import resources
from hack.simulation.apiserver import ApiServer

DEFAULT = 1_800.0  # seconds, as Kueue's own
EVICTION = "PodsReadyTimeout"
_LOOK_SECONDS = 4.0
Write = Callable[..., None]  # sets a condition of a Workload: it, type, status, reason, message
Evict = Callable[[Raw, str, str], None]


class ReadinessClock:
    """The clock of one cluster's Kueue. `are_ready` says of a Workload whether its pods are; None: it was not asked."""

    def __init__(
        self, server: ApiServer, seconds: float, are_ready: Callable[[Raw], bool | None], write: Write, evict: Evict
    ) -> None:
        self.seconds = seconds
        self._server, self._are_ready, self._write, self._evict = server, are_ready, write, evict

    def start(self, later: Callable[..., None]) -> None:
        """Look every few seconds; `update` reports what happens between two looks."""
        self._look(later)

    def _look(self, later: Callable[..., None]) -> None:
        for work in self._server.all(resources.WORKLOADS):
            self.update(work)
        later(_LOOK_SECONDS, _LOOK_SECONDS + 0.5, self._look, later)

    def update(self, work: Raw) -> None:
        """Write the condition of an admitted Workload, and evict it when its time is over."""
        if not is_condition_true(work, names.ADMITTED) or is_condition_true(work, names.EVICTED):
            return
        ready, known = self._are_ready(work), condition(work, names.PODS_READY)
        if ready is not None and (not known or (known["status"] == "True") != ready):
            self._write(work, names.PODS_READY, "True" if ready else "False", _reason(known, ready), "")
        elif known.get("status") != "True" and self._is_over(work, known):
            self._evict(work, EVICTION, f"Exceeded the PodsReady timeout {work['metadata']['name']}")

    def _is_over(self, work: Raw, known: Raw) -> bool:
        recovers = known.get("reason") == names.WAIT_FOR_RECOVERY
        since = parse_time(known["lastTransitionTime"]) if recovers else condition_true_since(work, names.ADMITTED)
        return since is not None and self._server.now() - since >= timedelta(seconds=self.seconds)


def _reason(known: Raw, ready: bool) -> str:
    before = known.get("reason")
    if ready:
        return "Recovered" if before in (names.WAIT_FOR_RECOVERY, "Recovered") else "Started"
    return (
        names.WAIT_FOR_RECOVERY
        if known.get("status") == "True" or before == names.WAIT_FOR_RECOVERY
        else "WaitForStart"
    )


def is_group_ready(pods: Iterable[Raw]) -> bool | None:
    """Whether a pod group is ready: it has as many pods as it says, and each is Ready. None without pods: then Kueue
    does not look (kueue:pkg/controller/jobs/pod/pod_controller.go, PodsReady and Load).
    """
    known = list(pods)
    if not known:
        return None
    total = int(annotation(known[0], names.GROUP_TOTAL_ANNOTATION) or 0)
    return len(known) >= total and all(is_condition_true(pod, "Ready") for pod in known)
