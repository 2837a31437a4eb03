"""The times at which a RayCluster reached each stage, and those of each worker.

Pure: recorded changes in, seconds out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import Raw, is_condition_true, label, meta
from adapter.objects.worker_pod import slot_of
from adapter.shell.kube.resources import PLACEMENTS, PODS, RAY_CLUSTERS, WORKLOADS
from hack.testbed.figures import percentile
from hack.testbed.recorder import Change

Times = Mapping[str, float]  # name -> seconds after the RayCluster was seen


@dataclass(frozen=True, slots=True)
class Rise:
    """The way up: seconds after the RayCluster was seen; nan for what does not happen in a run."""

    reserved: float
    placed: float
    ready: float
    admitted: float
    pods: Times  # the manager's worker pods
    slots: Times  # they have a slot in a worker cluster
    remotes: Times  # their remote pods
    started: Times  # the remote pods run
    running: Times  # the manager's pods say so
    whole: float  # KubeRay says that all workers are there

    def figures(self) -> dict[str, float]:
        """Its reported figures. In a plain run, those about remote pods are nan."""
        sent = [at - self.pods[name] for name, at in self.remotes.items() if name in self.pods]
        told = [self.running[name] - at for name, at in self.started.items() if name in self.running]
        return {
            "reserved_s": self.reserved,
            "placed_s": self.placed,
            "ready_s": self.ready,
            "admitted_s": self.admitted,
            "first_pod_s": percentile(list(self.pods.values()), 0),
            "last_pod_s": percentile(list(self.pods.values()), 100),
            "first_remote_s": percentile(list(self.remotes.values()), 0),
            "last_remote_s": percentile(list(self.remotes.values()), 100),
            "running_p50_s": percentile(list(self.running.values()), 50),
            "running_p99_s": percentile(list(self.running.values()), 99),
            "whole_s": self.whole,
            "pod_to_copy_p50_s": percentile(sent, 50),
            "pod_to_copy_p99_s": percentile(sent, 99),
            "copy_runs_to_mirrored_p50_s": percentile(told, 50),
            "copy_runs_to_mirrored_p99_s": percentile(told, 99),
        }


def rise(changes: Sequence[Change], manager: str) -> Rise:
    """Read the way up of the only RayCluster that was recorded."""
    here = [change for change in changes if change.cluster == manager]
    there = [change for change in changes if change.cluster != manager]
    begun = _once(_firsts(here, RAY_CLUSTERS.plural, lambda _: True), 0.0)

    def when(kind: str, test: Callable[[Raw], bool]) -> float:
        return _once(_firsts(here, kind, test), begun)

    def each(where: Iterable[Change], test: Callable[[Raw], bool]) -> Times:
        return {name: at - begun for name, at in _firsts(where, PODS.plural, lambda p: worker(p) and test(p)).items()}

    return Rise(
        reserved=when(WORKLOADS.plural, lambda w: is_condition_true(w, names.QUOTA_RESERVED)),
        placed=when(PLACEMENTS.plural, lambda p: (p.get("status") or {}).get("state") == PlacementState.PLACED),
        ready=when(WORKLOADS.plural, _checked),
        admitted=when(WORKLOADS.plural, lambda w: is_condition_true(w, names.ADMITTED)),
        pods=each(here, lambda _: True),
        slots=each(here, lambda pod: bool(slot_of(pod))),
        remotes=each(there, lambda _: True),
        started=each(there, runs),
        running=each(here, runs),
        whole=when(RAY_CLUSTERS.plural, whole),
    )


def fall(changes: Sequence[Change], manager: str) -> dict[str, float]:
    """Seconds from the deletion of the RayCluster to when the last pod, copy, and anything of it was gone."""
    here = [change for change in changes if change.cluster == manager]
    begun = min(c.at for c in here if c.kind == RAY_CLUSTERS.plural and (c.after is None or _deleted(c.after)))

    def last(of: Iterable[Change]) -> float:
        return max((change.at - begun for change in of if change.after is None), default=float("nan"))

    return {
        "pods_gone_s": last(c for c in here if c.kind == PODS.plural),
        "copies_gone_s": last(c for c in changes if c.cluster != manager and c.kind == PODS.plural),
        "all_gone_s": last(changes),
    }


def worker(pod: Raw) -> bool:
    """Whether it is a Ray worker; a remote pod lacks KubeRay's own labels."""
    return label(pod, names.RAY_NODE_TYPE_LABEL) == "worker" or bool(label(pod, names.POD_UID_LABEL))


def runs(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def whole(ray_cluster: Raw) -> bool:
    """Whether KubeRay has seen the head and all workers."""
    return (ray_cluster.get("status") or {}).get("state") == "ready"


def _checked(workload: Raw) -> bool:
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return bool(checks) and all(check.get("state") == names.CHECK_READY for check in checks)


def _deleted(raw: Raw) -> bool:
    return bool(meta(raw).get("deletionTimestamp"))


def _firsts(changes: Iterable[Change], kind: str, test: Callable[[Raw], bool]) -> dict[str, float]:
    """When each object of a kind first passed the test; changes come in the order of time."""
    found: dict[str, float] = {}
    for change in changes:
        if change.kind == kind and change.after is not None and test(change.after):
            found.setdefault(change.name, change.at)
    return found


def _once(times: Times, begun: float) -> float:
    return min(times.values(), default=float("nan")) - begun
