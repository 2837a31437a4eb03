"""What do we believe of a manager's Workload, and which attempt is it?

A small frozen record, read tolerantly: decisions read it and nothing else of the Workload, so what a decision depends on can
be seen here. Nothing here decides anything, and the group Workloads of the worker clusters are read elsewhere
(reservation.py).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from adapter import names
from adapter.objects.raw import (
    Key,
    Raw,
    annotation,
    condition,
    is_true,
    key_of,
    meta,
    moment,
    number,
    true_since,
    uid_of,
)


@dataclass(frozen=True, slots=True)
class Job:
    """The RayJob or RayCluster that a Workload stands for: the object its user looks at."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    service: "Job | None" = None  # the RayService that KubeRay made it of, where its user looks, too


def there(job: Job, raw: Raw) -> Literal["There", "Leaving", "Gone"]:
    """Whether a job is there, by `raw`, the object of its name, empty when none is known.

    A finalizer may keep up one that is leaving for hours. One that is gone may also be one that was not heard of yet: whoever acts on
    it is woken when it is. Of a kind that is none of Ray's nothing is known, and it counts as there.
    """
    if job.kind not in names.RAY_KINDS:
        return "There"
    if uid_of(raw) != job.uid:
        return "Gone"
    return "Leaving" if meta(raw).get("deletionTimestamp") else "There"


@dataclass(frozen=True, slots=True)
class PodSet:
    """One podset of a Workload, with the flavors Kueue assigned to it."""

    name: str
    count: int
    template: Raw
    flavors: frozenset[str]


@dataclass(frozen=True, slots=True)
class Check:
    """Our entry in a Workload's admission checks."""

    state: str
    message: str
    updates: tuple[Raw, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A manager's Workload, as far as our protocol looks at it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime | None
    queue: str
    priority: int | None
    deleted: bool
    finished: bool
    active: bool
    yielded_at: datetime | None  # since when we keep it out of the queue, None when we do not
    yields: int  # how often we did
    holds_quota: bool  # reserved, active, not evicted: only then may we act for it (docs/upstream.md, "Attempts")
    reserved_at: datetime | None
    attempt: str  # empty without a reservation
    podsets: tuple[PodSet, ...]
    job: Job | None
    checks: Mapping[str, Check]

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def workload(raw: Raw) -> Workload:
    """Read a Workload of kueue.x-k8s.io/v1beta2."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    namespace, name = key_of(raw)
    reserved = is_true(raw, names.QUOTA_RESERVED)
    return Workload(
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        resource_version=meta(raw).get("resourceVersion") or "",
        created=moment(meta(raw).get("creationTimestamp")),
        queue=spec.get("queueName") or "",
        priority=spec.get("priority"),
        deleted=bool(meta(raw).get("deletionTimestamp")),
        finished=is_true(raw, names.FINISHED),
        active=spec.get("active") is not False,
        yielded_at=moment(annotation(raw, names.YIELDED_ANNOTATION)),
        yields=number(annotation(raw, names.YIELDS_ANNOTATION)),
        holds_quota=reserved and not is_true(raw, names.EVICTED) and spec.get("active") is not False,
        reserved_at=true_since(raw, names.QUOTA_RESERVED),
        attempt=_attempt(raw) if reserved else "",
        podsets=_podsets(spec, status),
        job=_job(raw, namespace),
        checks={entry.get("name") or "": _check(entry) for entry in status.get("admissionChecks") or ()},
    )


def _attempt(raw: Raw) -> str:
    """Name this reservation: whoever is evicted and reserved again makes another attempt (docs/upstream.md, "Attempts")."""
    since = condition(raw, names.QUOTA_RESERVED).get("lastTransitionTime")
    admission = (raw.get("status") or {}).get("admission") or {}
    # Kueue may change a topology assignment within a reservation; what it counted, and where, it does not.
    counted = [(p.get("name"), p.get("flavors"), p.get("count")) for p in admission.get("podSetAssignments") or ()]
    text = json.dumps([uid_of(raw), since, admission.get("clusterQueue"), counted], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _podsets(spec: Raw, status: Raw) -> tuple[PodSet, ...]:
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


def _job(raw: Raw, namespace: str) -> Job | None:
    for owner in meta(raw).get("ownerReferences") or ():
        if owner.get("controller"):
            api_version, kind, name, uid = (str(owner.get(k) or "") for k in ("apiVersion", "kind", "name", "uid"))
            return Job(api_version, kind, namespace, name, uid)
    return None


def _check(entry: Raw) -> Check:
    return Check(
        state=entry.get("state") or "",
        message=entry.get("message") or "",
        updates=tuple(entry.get("podSetUpdates") or ()),
    )
