"""Metrics of executed actions, and gauges of pods, gangs and clusters at each scrape.

Durations start at the manager pod's creation, by the clocks of the manager and this process: a worker cluster's clock
may be wrong. Durations need no stored state, so a restart loses no sample. A count of the loop's tasks shows leaks
(hack/trials/soak, alert in docs/metrics.md).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adapter import names
from adapter.actions import Action, CreatePod, DeletePod, PatchPodStatus, SetCheck, UpdatePlacementStatus
from adapter.admission import condition_patches
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import Raw, condition, key_of, meta, parse_time
from adapter.objects.worker_pod import has_template_slot, placement_key, slot_cluster, without_unplanned_slot
from adapter.shell import metrics
from adapter.shell.clusters.cluster_cache import ClusterCache
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.supervise import read_each

_LabelValues = tuple[str, ...]
_STATES = tuple(PlacementState)
# The phases of a pod; no API server accepts another one.
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class StateCollector(Collector):
    """Collects gauges, within the controller's loop."""

    def __init__(self, manager: ManagerCache, read_caches: Callable[[], Mapping[str, ClusterCache]] = dict) -> None:
        """`read_caches`: the caches of the worker clusters now, by name."""
        self._manager, self._read_caches = manager, read_caches

    def describe(self) -> list[GaugeMetricFamily]:
        """The metrics without values: the registry calls this before there is a loop."""
        return [
            _pods_family(),
            _placements_family(),
            _reasons_family(),
            _token_expiry_family(),
            *_memory_families(),
            _tasks_family(),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _add_counts(_pods_family(), self._read_labels(self._manager.pods, self._pod_labels))
        yield _add_counts(_placements_family(), self._read_labels(self._manager.placements, _state_label))
        yield _add_counts(_reasons_family(), self._read_labels(self._manager.worker_clusters, _reason_labels))
        yield self._token_expiries(_token_expiry_family())
        yield from self._memory(*_memory_families())
        yield _add_counts(_tasks_family(), map(_coroutine_label, asyncio.all_tasks()))

    def _read_labels(self, objects: Iterable[Raw], read: Callable[[Raw], _LabelValues]) -> Iterator[_LabelValues]:
        return (labels for _, labels in read_each("measurements", objects, read))

    def _token_expiries(self, family: GaugeMetricFamily) -> GaugeMetricFamily:
        for cluster, end in read_each("measurements", self._manager.worker_clusters, self._manager.token_expiry):
            if end:
                family.add_metric([key_of(cluster)[1]], end.timestamp())
        return family

    def _memory(
        self, cached: GaugeMetricFamily, largest: GaugeMetricFamily, incomplete: GaugeMetricFamily
    ) -> Iterator[GaugeMetricFamily]:
        for cluster, cache in {"": self._manager, **self._read_caches()}.items():
            shares = cache.namespace_shares
            cached.add_metric([cluster], cache.budget.used_bytes)
            largest.add_metric([cluster], shares.largest_weight())
            incomplete.add_metric([cluster], len(shares.incomplete()))
        yield from (cached, largest, incomplete)

    def _pod_labels(self, pod: Raw) -> _LabelValues:
        """Cluster and phase. Annotations are untrusted, so only a registered cluster counts."""
        raw = self._manager.placements.get(placement_key(pod)) if has_template_slot(pod) else None
        cluster = slot_cluster(without_unplanned_slot(pod, self._manager.read_placement(raw) if raw else None))
        phase = str((pod.get("status") or {}).get("phase") or "Pending")
        # The phase is mirrored unchanged from a worker cluster.
        known_phase = phase if phase in _PHASES else metrics.OTHER
        return cluster if self._manager.worker_clusters.by_name(cluster) else "", known_phase


def _pods_family() -> GaugeMetricFamily:
    text = (
        "Worker pods of the manager by the cluster that their slot is in (empty: none yet) "
        "and the phase that they show."
    )
    return GaugeMetricFamily("rayspan_pods", text, labels=["cluster", "phase"])


def _tasks_family() -> GaugeMetricFamily:
    text = "Tasks in the controller's loop, by what they run: a number that only grows is a leak."
    return GaugeMetricFamily("rayspan_tasks", text, labels=["coroutine"])


def _placements_family() -> GaugeMetricFamily:
    text = "Gangs by the state of their Placement; those that Ended are records of what was."
    return GaugeMetricFamily("rayspan_placements", text, labels=["state"])


def _reasons_family() -> GaugeMetricFamily:
    text = "1 with the reason that each WorkerCluster's condition Connected has, whatever its status is."
    return GaugeMetricFamily("rayspan_cluster_connected_reason", text, labels=["cluster", "reason"])


def _token_expiry_family() -> GaugeMetricFamily:
    text = (
        "Unix time in seconds at which the token for a worker cluster expires; absent if its Secret does not name it."
    )
    return GaugeMetricFamily("rayspan_cluster_token_expiry_timestamp_seconds", text, labels=["cluster"])


def _memory_families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    texts = {
        "rayspan_cached_bytes": "Weight of the cached objects of a cluster, at most its memory limit.",
        "rayspan_largest_namespace_bytes": "Weight of the cached objects of the cluster's largest namespace.",
        "rayspan_incomplete_namespaces": "Namespaces whose objects are not kept, being too many or too large.",
    }
    cached, largest, incomplete = (GaugeMetricFamily(name, text, labels=["cluster"]) for name, text in texts.items())
    return cached, largest, incomplete


def _add_counts(family: GaugeMetricFamily, label_sets: Iterable[_LabelValues]) -> GaugeMetricFamily:
    for labels, number in Counter(label_sets).items():
        family.add_metric(labels, number)
    return family


def _state_label(placement: Raw) -> _LabelValues:
    state = str((placement.get("status") or {}).get("state") or PlacementState.WAITING)
    return (state if state in _STATES else metrics.OTHER,)


def _reason_labels(cluster: Raw) -> _LabelValues:
    reason = str(condition(cluster, names.CONNECTED).get("reason") or "")
    return key_of(cluster)[1], reason if reason in ("", *condition_patches.REASONS) else metrics.OTHER


def _coroutine_label(task: "asyncio.Task[object]") -> _LabelValues:
    return (str(getattr(task.get_coro(), "__qualname__", "unknown")),)


def count_action(action: Action, cluster: str, now: datetime) -> None:
    """Count an executed action; `cluster`: the worker cluster it was sent to, empty for the manager."""
    metrics.ACTIONS.labels(type(action).__name__, cluster).inc()
    match action:
        case CreatePod():
            _observe_dispatch(action.pod, cluster, metrics.CREATED, now)
        # The patch holds only what changes.
        case PatchPodStatus() if (action.body.get("status") or {}).get("phase") == "Running":
            _observe_dispatch(action.pod, slot_cluster(action.pod), metrics.RUNNING, now)
        case PatchPodStatus() if (action.body.get("status") or {}).get("phase") == "Failed":
            _count_lost_worker(action)
        case DeletePod() if action.orphan:
            metrics.ORPHANS.labels(cluster, action.orphan).inc()
        case UpdatePlacementStatus():
            _count_rollback(action)
        case SetCheck() if action.state == names.CHECK_READY:
            _observe_ready(action, now)


def _observe_dispatch(pod: Raw, cluster: str, stage: str, now: datetime) -> None:
    created = parse_time(meta(pod).get("creationTimestamp"))
    if created:
        metrics.DISPATCH.labels(cluster, stage).observe(max(0.0, (now - created).total_seconds()))


def _count_lost_worker(action: PatchPodStatus) -> None:
    """Count a failed worker.

    Only known labels are used: its slot may be forged, and its reason is the remote pod's where we set none.
    """
    reason = action.body["status"].get("reason")
    known_reason = reason if reason in names.LOSS_REASONS else metrics.OTHER
    metrics.WORKERS_LOST.labels(metrics.cluster_label(slot_cluster(action.pod)), known_reason).inc()


def _observe_ready(action: SetCheck, now: datetime) -> None:
    """Observe the wait once per attempt: a Ready check may be written again."""
    reserved, before = action.workload.reserved_at, action.workload.checks.get(action.check)
    if reserved and not (before and before.state == names.CHECK_READY):
        metrics.GANG_READY.observe(max(0.0, (now - reserved).total_seconds()))


def _count_rollback(action: UpdatePlacementStatus) -> None:
    if action.status.get("withdrawnRound") != action.placement.round or action.placement.withdrawing:
        return
    metrics.ROLLBACKS.inc()
    for blocker in action.status.get("blocked") or ():
        metrics.SPILLS.labels(blocker["cluster"]).inc()
