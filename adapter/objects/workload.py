"""Typed record of a manager's Workload and its attempt.

Decisions read nothing else of a Workload. Absent fields are empty. reservation.py reads the group Workloads of the
worker clusters.

An elastic job has a chain of Workloads, its slices: at each scale-up Kueue replaces the last slice by a new one
(docs/upstream.md, "Elastic jobs"). Such a chain is one gang, named after the job.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from adapter import names
from adapter.objects.past_exclusions import NO_PAST_EXCLUSIONS, PastExclusions, parse_past_exclusions
from adapter.objects.unstructured import (
    Key,
    Raw,
    annotation,
    condition,
    condition_true_since,
    is_condition_true,
    key_of,
    mapping_field,
    meta,
    parse_number,
    parse_time,
    uid_of,
)


@dataclass(frozen=True, slots=True)
class Job:
    """The RayJob or RayCluster of a Workload: the object that its user looks at."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    service: "Job | None" = None  # the RayService of the RayCluster, which its user looks at, too


@dataclass(frozen=True, slots=True)
class PodSet:
    """One podset of a Workload, with the flavors Kueue assigned to it."""

    name: str
    count: int
    template: Raw
    flavors: frozenset[str]


@dataclass(frozen=True, slots=True)
class AdmissionCheckState:
    """One entry of a Workload's admission checks."""

    state: str
    message: str
    updates: tuple[Raw, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A manager's Workload, as far as our decisions read it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created_at: datetime | None
    requeued_at: datetime | None  # when Kueue queued it again, behind those queued before
    backs_off: bool  # Kueue counts its PodsReadyTimeouts, and queues it again after a delay
    queue: str
    priority: int | None
    deleting: bool
    finished: bool  # and not replaced
    replaced: bool  # finished, because another slice of its elastic job replaced it
    elastic: bool  # a slice of an elastic job
    active: bool
    deactivated_at: datetime | None  # when we deactivated it; None when it is not deactivated by us
    deactivations: int  # how often we deactivated it
    # Its quota is reserved, and it is active and not evicted: only then may we act for it (docs/upstream.md,
    # "Attempts").
    holds_quota: bool
    reserved_at: datetime | None
    attempt: str  # empty without a quota reservation
    pods_unready_since: datetime | None  # since when Kueue counts the time until it evicts the job for unready pods
    podsets: tuple[PodSet, ...]
    job: Job | None
    checks: Mapping[str, AdmissionCheckState]
    past_exclusions: PastExclusions = NO_PAST_EXCLUSIONS  # of earlier attempts

    @property
    def queued_at(self) -> datetime | None:
        """Since when it has its place among those of its priority, as in Kueue's queue."""
        return max(filter(None, (self.created_at, self.requeued_at)), default=None)

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def gang_name(self) -> str:
        """The name of its gang: the Workload's, or that of its elastic job, which is equal for all slices."""
        return elastic_gang_name(self.job.kind, self.job.uid) if self.elastic and self.job else self.name

    @property
    def gang_key(self) -> Key:
        return self.namespace, self.gang_name

    @property
    def gang_uid(self) -> str:
        """The uid of the elastic job, or of the Workload."""
        return self.job.uid if self.elastic and self.job else self.uid


def parse_workload(raw: Raw) -> Workload:
    """Read a Workload of kueue.x-k8s.io/v1beta2."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    namespace, name = key_of(raw)
    reserved, elastic = is_condition_true(raw, names.QUOTA_RESERVED), is_elastic(raw)
    return Workload(
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        resource_version=meta(raw).get("resourceVersion") or "",
        created_at=parse_time(meta(raw).get("creationTimestamp")),
        requeued_at=_requeued_at(raw),
        backs_off=bool(mapping_field(mapping_field(raw, "status"), "requeueState").get("count")),
        queue=spec.get("queueName") or "",
        priority=spec.get("priority"),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        finished=is_condition_true(raw, names.FINISHED) and not (elastic and _is_replaced(raw)),
        replaced=elastic and _is_replaced(raw),
        elastic=elastic,
        active=spec.get("active") is not False,
        deactivated_at=parse_time(annotation(raw, names.DEACTIVATED_AT_ANNOTATION)),
        deactivations=parse_number(annotation(raw, names.DEACTIVATIONS_ANNOTATION)),
        holds_quota=reserved and not is_condition_true(raw, names.EVICTED) and spec.get("active") is not False,
        reserved_at=condition_true_since(raw, names.QUOTA_RESERVED),
        attempt=_attempt_id(raw) if reserved else "",
        pods_unready_since=pods_unready_since(raw),
        podsets=_parse_podsets(spec, status),
        job=job_of(raw),
        checks={entry.get("name") or "": _parse_check(entry) for entry in status.get("admissionChecks") or ()},
        past_exclusions=parse_past_exclusions(annotation(raw, names.PAST_EXCLUSIONS_ANNOTATION)),
    )


def is_elastic(raw: Raw) -> bool:
    """Whether a Workload is a slice of an elastic Ray job; cheap, because each event needs it."""
    return annotation(raw, names.ELASTIC_ANNOTATION) == "true" and bool(_elastic_gang_of(raw))


def gang_key(raw: Raw) -> Key:
    """The key by which the gang of a Workload is reconciled."""
    return (key_of(raw)[0], _elastic_gang_of(raw)) if is_elastic(raw) else key_of(raw)


def elastic_gang_name(kind: str, uid: str) -> str:
    """The name of an elastic job's gang; no object has a name with a slash."""
    return f"{kind}/{uid}"


def is_elastic_gang(gang: str) -> bool:
    """Whether a gang is an elastic job's."""
    return "/" in gang


def pods_unready_since(raw: Raw) -> datetime | None:
    """Since when Kueue shows that it counts the time in which not all pods are ready.

    None: all are ready, or it does not show it yet, or it does not count.

    It counts from the admission until all pods were ready once (kueue:pkg/controller/core/workload_controller.go,
    admittedNotReadyWorkload).
    """
    ready = condition(raw, names.PODS_READY)
    if ready.get("status") != "False":
        return None
    recovers = ready.get("reason") == names.WAIT_FOR_RECOVERY
    return parse_time(ready.get("lastTransitionTime")) if recovers else condition_true_since(raw, names.ADMITTED)


def _requeued_at(raw: Raw) -> datetime | None:
    """When Kueue last queued a Workload again after a check's Retry or PodsReadyTimeout; None after another eviction.

    Kueue takes the time of such an eviction for the Workload's age until it reserves quota. The condition stays. Our
    deactivation gives it another reason, so the annotation keeps the time.
    Source: docs/upstream.md, "Retry and the manager's quota".
    """
    requeued = condition(raw, names.REQUEUED)
    is_behind = requeued.get("status") == "True" and requeued.get("reason") == names.BACKOFF_FINISHED
    times = annotation(raw, names.REQUEUED_AT_ANNOTATION), requeued.get("lastTransitionTime") if is_behind else None
    return max(filter(None, map(parse_time, times)), default=None)


def active_slice(slices: Iterable[Raw]) -> Raw | None:
    """The current Workload of an elastic job.

    It is the newest one that holds quota and is not finished (kueue:pkg/workloadslicing, FindLatestActiveWorkload);
    without one, the newest that is not finished; else the newest.
    """
    return max(slices, key=_slice_order, default=None)


def _slice_order(raw: Raw) -> tuple[bool, bool, bool, str, str]:
    """The sort key for `active_slice`. Of two finished slices of the same second one may have replaced the other."""
    unfinished = not is_condition_true(raw, names.FINISHED)
    holds = unfinished and is_condition_true(raw, names.QUOTA_RESERVED) and not is_condition_true(raw, names.EVICTED)
    return unfinished, holds, not _is_replaced(raw), str(meta(raw).get("creationTimestamp") or ""), uid_of(raw)


def _elastic_gang_of(raw: Raw) -> str:
    job = job_of(raw)
    return elastic_gang_name(job.kind, job.uid) if job and job.kind in names.RAY_KINDS else ""


def _is_replaced(raw: Raw) -> bool:
    return (
        is_condition_true(raw, names.FINISHED) and condition(raw, names.FINISHED).get("reason") == names.SLICE_REPLACED
    )


def _attempt_id(raw: Raw) -> str:
    """The attempt's name; a new quota reservation after an eviction is another one (docs/upstream.md, "Attempts")."""
    since = condition(raw, names.QUOTA_RESERVED).get("lastTransitionTime")
    admission = (raw.get("status") or {}).get("admission") or {}
    # Kueue may change a topology assignment within a quota reservation, but not counts, flavors and ClusterQueue.
    counts = [
        (podset.get("name"), podset.get("flavors"), podset.get("count"))
        for podset in admission.get("podSetAssignments") or ()
    ]
    text = json.dumps([uid_of(raw), since, admission.get("clusterQueue"), counts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _parse_podsets(spec: Raw, status: Raw) -> tuple[PodSet, ...]:
    assigned = {
        entry.get("name"): frozenset((entry.get("flavors") or {}).values())
        for entry in (status.get("admission") or {}).get("podSetAssignments") or ()
    }
    return tuple(
        PodSet(
            name=entry.get("name") or "main",
            count=int(entry.get("count") or 0),
            template=entry.get("template") or {},
            flavors=assigned.get(entry.get("name"), frozenset()),
        )
        for entry in spec.get("podSets") or ()
    )


def job_of(raw: Raw) -> Job | None:
    """The job of a Workload, without its other fields."""
    for owner in meta(raw).get("ownerReferences") or ():
        if owner.get("controller"):
            api_version, kind, name, uid = (str(owner.get(k) or "") for k in ("apiVersion", "kind", "name", "uid"))
            return Job(api_version, kind, key_of(raw)[0], name, uid)
    return None


def _parse_check(entry: Raw) -> AdmissionCheckState:
    return AdmissionCheckState(
        state=entry.get("state") or "",
        message=entry.get("message") or "",
        updates=tuple(entry.get("podSetUpdates") or ()),
    )
