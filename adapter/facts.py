"""What we believe: small frozen records read tolerantly from API objects.

Decisions read these and nothing else, so what a decision depends on can be seen here. Readers never raise on a missing
or odd field: an absent condition is false, an absent list is empty. (An API server has checked the types.) Nothing here decides
anything.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from adapter import names

Raw = Mapping[str, Any]
Key = tuple[str, str]  # namespace, name


def meta(raw: Raw) -> Raw:
    """The object's metadata, or nothing."""
    return raw.get("metadata") or {}


def key_of(raw: Raw) -> Key:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    return meta(raw).get("namespace") or "", meta(raw).get("name") or ""


def uid_of(raw: Raw) -> str:
    """The object's uid, empty when it has none."""
    return meta(raw).get("uid") or ""


def label(raw: Raw, name: str) -> str:
    """A label's value, empty when absent."""
    return (meta(raw).get("labels") or {}).get(name) or ""


def annotation(raw: Raw, name: str) -> str:
    """An annotation's value, empty when absent."""
    return (meta(raw).get("annotations") or {}).get(name) or ""


def condition(raw: Raw, kind: str) -> Raw:
    """The condition of that type from the object's status, or an empty one."""
    for found in (raw.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            return found  # type: ignore[no-any-return]
    return {}


def is_true(raw: Raw, kind: str) -> bool:
    """Whether the object's condition of that type is True."""
    return condition(raw, kind).get("status") == "True"


def moment(text: object) -> datetime | None:
    """An API timestamp as an aware datetime, None when absent or unreadable."""
    try:
        read = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)
    except ValueError:
        return None


def timestamp(when: datetime) -> str:
    """A datetime as the API server writes it: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def controller_uid(raw: Raw) -> str:
    """The uid of the object's controlling owner, empty when it has none."""
    owners = meta(raw).get("ownerReferences") or ()
    return next((owner.get("uid") or "" for owner in owners if owner.get("controller")), "")


@dataclass(frozen=True, slots=True)
class Job:
    """The RayJob or RayCluster that a Workload stands for: the object its user looks at."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


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
    holds_quota: bool  # reserved, active, not evicted: the only time in which we may act for it (kueue.md 1.4)
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
        yields=_number(annotation(raw, names.YIELDS_ANNOTATION)),
        holds_quota=reserved and not is_true(raw, names.EVICTED) and spec.get("active") is not False,
        reserved_at=_reserved_at(raw),
        attempt=_attempt(raw) if reserved else "",
        podsets=_podsets(spec, status),
        job=_job(raw, namespace),
        checks={entry.get("name") or "": _check(entry) for entry in status.get("admissionChecks") or ()},
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _version(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0  # etcd counts in 63 bits


def _reserved_at(raw: Raw) -> datetime | None:
    if not is_true(raw, names.QUOTA_RESERVED):
        return None
    return moment(condition(raw, names.QUOTA_RESERVED).get("lastTransitionTime"))


def _attempt(raw: Raw) -> str:
    """Name this reservation: a Workload that is evicted and reserved again is another attempt (kueue.md 1.4)."""
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


@dataclass(frozen=True, slots=True)
class GroupShare:
    """How many workers of one worker group go to one cluster."""

    name: str
    role: str
    count: int


@dataclass(frozen=True, slots=True)
class Share:
    """What one cluster is asked to reserve for a gang."""

    cluster: str
    groups: tuple[GroupShare, ...]
    preempts: bool = False  # Kueue must preempt others for it, so it is asked for last
    round: int = 0  # which round of its Placement made it; 0: the one that the Placement is in

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A cluster that did not admit in time and is not asked again before `until`."""

    cluster: str
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Our own record of what was decided for one attempt of a Workload."""

    namespace: str
    name: str
    uid: str
    workload_uid: str
    workload: str
    attempt: str
    round: int
    given_up: int  # how many earlier rounds of the attempt were withdrawn
    planned_at: datetime | None
    shares: tuple[Share, ...]
    wanted: int
    excluded: tuple[Exclusion, ...]
    explanation: str
    lost: str  # why workers had to be planned anew, empty when all have a place
    withdrawn_round: int
    placed_round: int  # the last round of which every share was admitted
    blocked: tuple[Exclusion, ...]
    status: Raw

    @property
    def withdrawing(self) -> bool:
        """The shares of this round are given up; they go first, then comes a new round."""
        return self.round > 0 and self.withdrawn_round >= self.round

    @property
    def live(self) -> tuple[Share, ...]:
        """The shares that are wanted: while a round is withdrawn only those that earlier ones left in place."""
        return tuple(share for share in self.shares if not self.withdrawing or self.round_of(share) < self.round)

    def round_of(self, share: Share) -> int:
        """The round that made a share: with its cluster it tells the share from all others of the Placement."""
        return share.round or self.round


def placement(raw: Raw) -> Placement:
    """Read a Placement."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    owner = spec.get("workload") or {}
    namespace, name = key_of(raw)
    return Placement(
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        workload_uid=owner.get("uid") or "",
        workload=owner.get("name") or "",
        attempt=spec.get("attempt") or "",
        round=int(spec.get("round") or 0),
        given_up=int(spec.get("givenUp") or 0),
        planned_at=moment(spec.get("plannedAt")),
        shares=tuple(_share(entry) for entry in spec.get("shares") or ()),
        wanted=int(spec.get("wanted") or 0),
        excluded=tuple(_exclusions(spec.get("excluded") or ())),
        explanation=spec.get("explanation") or "",
        lost=spec.get("lost") or "",
        blocked=tuple(_exclusions(status.get("blocked") or ())),
        withdrawn_round=int(status.get("withdrawnRound") or 0),
        placed_round=int(status.get("placedRound") or 0),
        status=status,
    )


def _share(entry: Raw) -> Share:
    groups = (
        GroupShare(g.get("name") or "", g.get("role") or "", int(g.get("count") or 0))
        for g in entry.get("groups") or ()
    )
    preempts, round_ = bool(entry.get("preempts")), int(entry.get("round") or 0)
    return Share(entry.get("cluster") or "", tuple(groups), preempts, round_)


def share_key(slot: str) -> tuple[str, int]:
    """Cluster and round of the share that a slot is on; a slot that says nothing is on none."""
    cluster, number, *_ = *slot.split("/"), "", ""
    return cluster, _number(number)


def _exclusions(entries: Iterable[Raw]) -> Iterable[Exclusion]:
    for entry in entries:
        until = moment(entry.get("until"))
        if until:
            yield Exclusion(entry.get("cluster") or "", until, entry.get("reason") or "")


@dataclass(frozen=True, slots=True)
class Reservation:
    """A group Workload of ours as a worker cluster shows it."""

    cluster: str
    namespace: str
    name: str
    uid: str
    anchor_uid: str
    placement: str
    round: int
    deleting: bool
    over: bool  # finished or deactivated there: it will never be admitted again
    admitted: bool
    reserved_at: datetime | None  # None: holds no quota now
    message: str  # what that cluster's Kueue says while it waits
    refused: bool  # it looked, and found no quota that it could give now or take from others
    cluster_queue: str = ""  # where it holds quota
    version: int = 0  # of the object, as a number
    evicted: str = ""  # why its pods were stopped, as that cluster's Kueue says it; empty when they were not
    templates: Mapping[str, Raw] = field(default_factory=dict)  # role -> what quota is held for, for each pod
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> what its pods were given
    ray_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # role -> what Ray is told of them
    pod_group: str = ""  # the Volcano PodGroup of its pods; empty: it has none
    stranded: bool = False  # evicted, and no pod is left by whose end Kueue would notice that the quota is free

    @property
    def unanswered(self) -> bool:
        """That cluster's Kueue has neither looked at it nor begun to."""
        return not (self.message or self.evicted or self.deleting or self.reserved_at)


def reservation(cluster: str, raw: Raw) -> Reservation:
    """Read a remote group Workload."""
    namespace, name = key_of(raw)
    owners = meta(raw).get("ownerReferences") or ()
    round_text = annotation(raw, names.ROUND_ANNOTATION)
    # Kueue's Finish leaves Admitted as it was (kueue:pkg/workload/finish).
    over = is_true(raw, names.FINISHED) or (raw.get("spec") or {}).get("active") is False
    return Reservation(
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=uid_of(raw),
        anchor_uid=next((o.get("uid") or "" for o in owners if o.get("kind") == "ConfigMap"), ""),
        placement=label(raw, names.PLACEMENT_LABEL),
        round=_number(round_text),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        over=over,
        admitted=is_true(raw, names.ADMITTED) and not is_true(raw, names.EVICTED) and not over,
        reserved_at=_reserved_at(raw),
        message=condition(raw, names.QUOTA_RESERVED).get("message") or "",
        refused=_refused(condition(raw, names.QUOTA_RESERVED)),
        cluster_queue=((raw.get("status") or {}).get("admission") or {}).get("clusterQueue") or "",
        version=_version(meta(raw).get("resourceVersion") or ""),
        templates={
            one.get("name") or "": one.get("template") or {} for one in (raw.get("spec") or {}).get("podSets") or ()
        },
        flavors=_flavors((raw.get("status") or {}).get("admission") or {}),
        pod_group=annotation(raw, names.POD_GROUP_ANNOTATION),
        evicted=str(condition(raw, names.EVICTED).get("message") or "evicted") if is_true(raw, names.EVICTED) else "",
    )


def _flavors(admission: Raw) -> dict[str, tuple[str, ...]]:
    assigned = admission.get("podSetAssignments") or ()
    return {one.get("name") or "": tuple(sorted(set((one.get("flavors") or {}).values()))) for one in assigned}


def _refused(reserved: Raw) -> bool:
    """Kueue tells the reason in a word only under a gate that is off by default; what preempts or is yet to be looked at
    says so in its message. One that we misread is given up early or late, and nothing worse."""
    message = str(reserved.get("message") or "").lower()
    return reserved.get("status") == "False" and bool(message) and "preempt" not in message
