"""Reads and writes Placements: the record of a gang's plan, for one attempt of a Workload or for an elastic job.

The spec is the wanted state in the worker clusters; the status is the observed state. planning/ makes the plans, and
gang/messages.py the messages of a status.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from adapter import names
from adapter.names import ReasonCode
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, format_time, key_of, meta, parse_time, truncate, uid_of
from adapter.objects.workload import Job, Workload, elastic_gang_name

# The limit of the Placement's schema: so many shares take some 50 kB, which are read at each event. An elastic job has
# a share for almost every worker. Above the limit a gang gets no further share.
MAX_SHARES = 500
MAX_CONSIDERED_CLUSTERS = 100  # the limit of verdicts
# A round from this number on is forged: no job gets so many rounds, and later ones would be too long for a slot
# (worker_pod.py).
_FORGED_ROUND = 10**8


class PlacementState(StrEnum):
    """The state of a gang: `status.state` of its Placement."""

    WAITING = "Waiting"  # no capacity; nothing is reserved anywhere
    RESERVING = "Reserving"  # not all shares are admitted
    WITHDRAWING = "Withdrawing"  # the shares of a failed round are being deleted
    PLACED = "Placed"  # every share is admitted
    UNKNOWN = "Unknown"  # placed, and one of its clusters is unreachable
    ENDED = "Ended"  # kept as a record of a finished Workload

    @property
    def placed_condition(self) -> Literal["True", "False", "Unknown"]:
        """The status of the Placement's condition `Placed`."""
        if self is PlacementState.PLACED:
            return "True"
        return "Unknown" if self is PlacementState.UNKNOWN else "False"


@dataclass(frozen=True, slots=True)
class GroupShare:
    """A worker group on a share."""

    name: str
    role: str
    count: int
    hosts: int = 1  # of each replica; the count is a multiple of it


@dataclass(frozen=True, slots=True)
class Share:
    """The workers that one cluster gets in one round."""

    cluster: str
    groups: tuple[GroupShare, ...]
    preempts: bool = False  # Kueue must preempt others for it, so it is created last
    round: int = 0  # the round that created it; 0: the current round
    single_worker: bool = False  # deleted with its worker
    borrows: bool = False  # its cluster's quota for it is borrowed, so it is created after what is nominal there

    @property
    def has_own_round(self) -> bool:
        """Whether no other share of its plan has its round; a cluster has at most one share of the others."""
        return self.single_worker or self.borrows

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)


class ShareKey(NamedTuple):
    """Identifies a share in its Placement."""

    cluster: str
    round: int


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A cluster that is not planned on before `until`."""

    cluster: str
    until: datetime
    reason: str
    # When workers were found not to start there. A worker of the gang that starts there later may end the exclusion.
    not_started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many workers of the gang fit in one cluster alone, and how many it gets. For people; never read back."""

    cluster: str
    nominal: int  # within nominal quota
    borrow: int  # on top, with borrowed quota
    potential: int  # if nothing else ran there
    chosen: int
    reason: str  # why it gets no more; empty when it gets all
    needed: bool = True  # False where the gang went elsewhere, although it has capacity

    @property
    def fitting_workers(self) -> int:
        return self.nominal + self.borrow


@dataclass(frozen=True, slots=True)
class Placement:
    """The record of the plan for one attempt of a Workload.

    An elastic job (`job`) has one Placement for all attempts, which refers to the active slice. The job's templates
    contain the Placement's name, so that must not change.
    """

    namespace: str
    name: str
    uid: str
    workload_uid: str
    workload: str
    attempt: str
    round: int
    failed_rounds: int  # withdrawn rounds of the attempt
    planned_at: datetime | None
    shares: tuple[Share, ...]
    wanted_workers: int
    exclusions: tuple[Exclusion, ...]
    explanation: str
    lost_reason: str  # why workers were planned again; empty when all have a slot
    withdrawn_round: int
    placed_round: int  # the last round with every share admitted
    blocked: tuple[Exclusion, ...]
    status: Raw
    resource_version: str = ""
    start_timeouts: int = 0  # in the attempt
    job: Job | None = None  # the elastic job
    code: ReasonCode | None = None  # why nothing was planned; None where shares were planned
    first_round_of_plan: int = 0  # 0: the last plan was for a start
    waiting_since: datetime | None = None  # when workers began to wait for a slot; None: the last plan has all

    @property
    def gang_name(self) -> str:
        return elastic_gang_name(self.job.kind, self.job.uid) if self.job else self.workload

    @property
    def withdrawing(self) -> bool:
        """Whether the shares of the current round are deleted before a new round."""
        return self.round > 0 and self.withdrawn_round >= self.round

    @property
    def implied_placed_round(self) -> int:
        """The last placed round of a running job, also while no status records it.

        If the spec has no first round of the last plan, that plan was for a start; as the job runs, its round is
        placed. If the spec has one, the job ran already or is elastic, and that round may not be placed yet.
        """
        return self.placed_round or (self.first_round_of_plan - 1 if self.first_round_of_plan else self.round)

    def is_placed(self, share: Share) -> bool:
        """Whether a running job keeps this share: its round was admitted as a whole, or it is of one worker.

        Another round may be withdrawn yet, with shares that are admitted.
        """
        return share.single_worker or self.round_of(share) <= self.implied_placed_round

    @property
    def active_shares(self) -> tuple[Share, ...]:
        """The wanted shares; while a round is withdrawn, those of earlier plans."""
        return tuple(share for share in self.shares if not (self.withdrawing and self.is_from_last_plan(share)))

    def is_from_last_plan(self, share: Share) -> bool:
        """Whether a share is from the last plan, which has several rounds if shares have rounds of their own.

        A plan for a start keeps no share, so all that borrow are from it.
        """
        if self.first_round_of_plan:
            return self.round_of(share) >= self.first_round_of_plan
        return share.borrows or self.round_of(share) >= self.round

    def round_of(self, share: Share) -> int:
        """The round that created a share."""
        return share.round or self.round

    def share_key(self, share: Share) -> ShareKey:
        return ShareKey(share.cluster, self.round_of(share))

    def excluded_clusters(self, now: datetime) -> set[str]:
        """The clusters that the last plan excluded and still excludes; workers take slots elsewhere first."""
        return {exclusion.cluster for exclusion in self.exclusions if exclusion.until > now}

    def belongs_to(self, workload: Workload) -> bool:
        """Whether this is the Placement of the Workload's attempt; the Workload must hold quota and not be finished.

        A new slice of the Placement's elastic job counts, because it may precede our update; a new attempt of a slice
        does not.
        """
        same_attempt = workload.uid == self.workload_uid and workload.attempt == self.attempt
        next_slice = self.job is not None and workload.gang_name == self.gang_name and workload.uid != self.workload_uid
        return (same_attempt or next_slice) and workload.holds_quota and not workload.finished

    def name_of_share(self, share: Share) -> str:
        """The name of a share's group Workload and anchor."""
        return share_name(self.name, self.round_of(share))


def describe_shares(shares: Iterable[Share]) -> str:
    """`2 east, 2 west`: the workers of the shares, by cluster."""
    workers = Counter[str]()
    for share in shares:
        workers[share.cluster] += share.workers
    return ", ".join(f"{count} {cluster}" for cluster, count in workers.items())


def share_name(placement: str, round_: int) -> str:
    """The name of the share of a round.

    A Placement that follows a deleted one has the same name, so its rounds begin after all that are in use.
    """
    return f"{placement}-{round_}"


def last_round(*rounds: int) -> int:
    """The last of these rounds, which annotations name; 0 without any. A forged round does not count."""
    return max((number for number in rounds if number < _FORGED_ROUND), default=0)


def parse_placement(raw: Raw) -> Placement:
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
        failed_rounds=int(spec.get("givenUp") or 0),
        planned_at=parse_time(spec.get("plannedAt")),
        shares=tuple(_parse_share(entry) for entry in spec.get("shares") or ()),
        wanted_workers=int(spec.get("wanted") or 0),
        exclusions=tuple(_parse_exclusions(spec.get("excluded") or ())),
        explanation=spec.get("explanation") or "",
        lost_reason=spec.get("lost") or "",
        blocked=tuple(_parse_exclusions(status.get("blocked") or ())),
        withdrawn_round=int(status.get("withdrawnRound") or 0),
        placed_round=int(status.get("placedRound") or 0),
        status=status,
        resource_version=str(meta(raw).get("resourceVersion") or ""),
        start_timeouts=int(spec.get("unstarted") or 0),
        job=_parse_job(spec.get("job") or {}, namespace),
        first_round_of_plan=int(spec.get("since") or 0),
        code=_parse_code(spec.get("explanationCode")),
        waiting_since=parse_time(spec.get("waitingSince")),
    )


def _parse_code(text: object) -> ReasonCode | None:
    """The reason code of a plan; None where it is absent or from another version."""
    return next((code for code in ReasonCode if code == text), None)


def _parse_job(raw: Raw, namespace: str) -> Job | None:
    """The elastic job; other jobs have no uid in the record."""
    if not raw.get("uid"):
        return None
    return Job(raw.get("apiVersion") or "", raw.get("kind") or "", namespace, raw.get("name") or "", raw["uid"])


def gang_name_of(raw: Raw) -> str:
    """The gang name of a Placement, without reading the rest, because each event needs it."""
    spec = raw.get("spec") or {}
    job = spec.get("job") or {}
    return (
        elastic_gang_name(job.get("kind") or "", job["uid"])
        if job.get("uid")
        else (spec.get("workload") or {}).get("name") or ""
    )


def _parse_share(entry: Raw) -> Share:
    return Share(
        cluster=entry.get("cluster") or "",
        groups=tuple(map(_parse_group_share, entry.get("groups") or ())),
        preempts=bool(entry.get("preempts")),
        round=int(entry.get("round") or 0),
        single_worker=bool(entry.get("single")),
        borrows=bool(entry.get("borrows")),
    )


def _parse_group_share(group: Raw) -> GroupShare:
    count, hosts = int(group.get("count") or 0), int(group.get("hosts") or 1)
    return GroupShare(group.get("name") or "", group.get("role") or "", count, max(hosts, 1))


def _parse_exclusions(entries: Iterable[Raw]) -> Iterable[Exclusion]:
    for entry in entries:
        until = parse_time(entry.get("until"))
        if until:
            not_started_at = parse_time(entry.get("notStartedAt"))
            yield Exclusion(entry.get("cluster") or "", until, entry.get("reason") or "", not_started_at)


def placement_manifest(
    placement: Placement, job: Job | None, check: str, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Build the object of a Placement without its status, as `parse_placement` reads it.

    The job, the check and the verdicts are for people. Texts and lists are truncated to the schema's limits.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {
            "name": placement.name,
            "namespace": placement.namespace,
            "ownerReferences": [_owner_reference(placement)],
        },
        "spec": {
            "workload": {"name": placement.workload, "uid": placement.workload_uid},
            "job": {**({"kind": job.kind, "name": job.name} if job else {}), **_elastic_job_identity(placement)},
            "check": check,
            "attempt": placement.attempt,
            "round": placement.round,
            "since": placement.first_round_of_plan or None,
            "givenUp": placement.failed_rounds,
            "unstarted": placement.start_timeouts,
            "plannedAt": placement.planned_at and format_time(placement.planned_at),
            "wanted": placement.wanted_workers,
            "waitingSince": placement.waiting_since and format_time(placement.waiting_since),
            "shares": [_share_spec(share) for share in placement.shares[:MAX_SHARES]],
            "lost": truncate(placement.lost_reason) or None,
            "considered": [_verdict_spec(verdict) for verdict in verdicts[:MAX_CONSIDERED_CLUSTERS]],
            "excluded": [_exclusion_spec(entry) for entry in placement.exclusions],
            "explanation": truncate(placement.explanation),
            "explanationCode": placement.code,
        },
    }


def placement_name(workload: Workload) -> str:
    """The name of a Placement, a DNS name and label value: the job's name, then attempt or gang.

    Kueue keeps the label in the templates of a stopped elastic job, and would not start the job with another value.
    """
    job = (workload.job.name if workload.job else workload.name)[:54].rstrip("-.")
    suffix = hashlib.sha256(workload.gang_name.encode()).hexdigest()[:8] if workload.elastic else workload.attempt
    return f"{job}-{suffix}".replace(".", "-")


def _elastic_job_identity(placement: Placement) -> dict[str, str]:
    return {"apiVersion": placement.job.api_version, "uid": placement.job.uid} if placement.job else {}


def _share_spec(share: Share) -> dict[str, Any]:
    preempts = {"preempts": True} if share.preempts else {}
    round_ = {"round": share.round} if share.round else {}
    single = {"single": True} if share.single_worker else {}
    borrows = {"borrows": True} if share.borrows else {}
    groups = [_group_share_spec(group) for group in share.groups]
    return {"cluster": share.cluster, "groups": groups, **preempts, **round_, **single, **borrows}


def _group_share_spec(group: GroupShare) -> dict[str, Any]:
    return {key: value for key, value in asdict(group).items() if (key, value) != ("hosts", 1)}


def _exclusion_spec(entry: Exclusion) -> dict[str, str]:
    reason = truncate(entry.reason, MAX_ITEM_LENGTH)
    spec = {"cluster": entry.cluster, "until": format_time(entry.until), "reason": reason}
    return spec | ({"notStartedAt": format_time(entry.not_started_at)} if entry.not_started_at else {})


def _verdict_spec(verdict: Verdict) -> dict[str, Any]:
    """The record of a verdict; not by `asdict`, which takes ten times as long: each plan writes a hundred verdicts."""
    return {
        "cluster": verdict.cluster,
        "nominal": verdict.nominal,
        "borrow": verdict.borrow,
        "ever": verdict.potential,
        "chosen": verdict.chosen,
        "reason": truncate(verdict.reason, MAX_ITEM_LENGTH),
    }


def _owner_reference(placement: Placement) -> dict[str, Any]:
    """A reference to the elastic job, because Kueue may delete replaced slices; without one, to the Workload."""
    job = placement.job
    api_version, kind = (job.api_version, job.kind) if job else (names.KUEUE_API_VERSION, "Workload")
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": job.name if job else placement.workload,
        "uid": job.uid if job else placement.workload_uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
