"""What was decided for one attempt of a Workload, or for an elastic job, as our own record of it says?

A Placement's spec is what is wanted in the worker clusters, a round with its shares; its status is what came of it. Both ways
stand here, the reading (`placement`) and the writing (`manifest`), and what is written is read back the same. Nothing here
decides anything: plans are made in planning/, and the sentences of a status in gang/messages.py.
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

# What the schema of a Placement allows: some fifty kilobytes, which are read at each event and written at each step, and in which
# an elastic job has one share for almost every worker. A gang in so many pieces goes without the next one, not without any plan.
MAX_SHARES = 500
MAX_CONSIDERED_CLUSTERS = 100  # of which it says what was found there


class PlacementState(StrEnum):
    """Where a gang stands; `status.state` of its Placement."""

    WAITING = "Waiting"  # no capacity; nothing is reserved anywhere
    RESERVING = "Reserving"  # shares are created, and not all of them are admitted
    WITHDRAWING = "Withdrawing"  # a round was not admitted; its shares are being deleted
    PLACED = "Placed"  # every share is admitted
    UNKNOWN = "Unknown"  # placed, and a cluster of it is unreachable
    ENDED = "Ended"  # the Workload is finished; the Placement is kept as a record

    @property
    def placed_condition(self) -> Literal["True", "False", "Unknown"]:
        """The status of the Placement's condition `Placed`."""
        if self is PlacementState.PLACED:
            return "True"
        return "Unknown" if self is PlacementState.UNKNOWN else "False"


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
    single_worker: bool = False  # the one worker on it came by itself, and takes the share along when it goes

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)


class ShareKey(NamedTuple):
    """The cluster and the round of a share, which identify it in its Placement."""

    cluster: str
    round: int


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A cluster that did not admit in time and is not asked again before `until`."""

    cluster: str
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many workers of the gang fit in one cluster, were it asked alone, and how many it gets.

    Written for people and never read back: no decision rests on it.
    """

    cluster: str
    nominal: int  # within nominal quota
    borrow: int  # on top, with borrowed quota
    potential: int  # if nothing else ran there
    chosen: int
    reason: str  # why it gets none, or no more; empty when it gets all that it was asked for
    needed: bool = True  # False where the gang went elsewhere, although it has capacity

    @property
    def fitting_workers(self) -> int:
        return self.nominal + self.borrow


@dataclass(frozen=True, slots=True)
class Placement:
    """Our own record of what was decided for one attempt of a Workload.

    An elastic job has one for as long as it is there (`job`): it is pointed to the slice that is active, and its rounds go on, so
    that its name, which stands in the templates of the job, is the same for all of its pods.
    """

    namespace: str
    name: str
    uid: str
    workload_uid: str
    workload: str
    attempt: str
    round: int
    failed_rounds: int  # how many earlier rounds of the attempt were withdrawn
    planned_at: datetime | None
    shares: tuple[Share, ...]
    wanted_workers: int
    exclusions: tuple[Exclusion, ...]
    explanation: str
    lost_reason: str  # why workers had to be planned anew, empty when all have a place
    withdrawn_round: int
    placed_round: int  # the last round of which every share was admitted
    blocked: tuple[Exclusion, ...]
    status: Raw
    resource_version: str = ""
    start_timeouts: int = 0  # how often workers of the attempt did not start in time, and were to start elsewhere
    job: Job | None = None  # the elastic job that it stands for
    code: ReasonCode | None = None  # why nothing was planned; None: something was
    first_round_of_plan: int = 0  # the first of the rounds that the last plan made; 0: it made one

    @property
    def gang_name(self) -> str:
        """What its gang is called (Workload.gang)."""
        return elastic_gang_name(self.job.kind, self.job.uid) if self.job else self.workload

    @property
    def withdrawing(self) -> bool:
        """The shares of this round are given up; they go first, then comes a new round."""
        return self.round > 0 and self.withdrawn_round >= self.round

    @property
    def active_shares(self) -> tuple[Share, ...]:
        """The shares that are wanted: while a round is withdrawn only those that earlier ones left in place."""
        return tuple(share for share in self.shares if not (self.withdrawing and self.is_from_last_plan(share)))

    def is_from_last_plan(self, share: Share) -> bool:
        """Whether the last plan made a share: each share of a single worker is a round of its own."""
        return self.round_of(share) >= (self.first_round_of_plan or self.round)

    def round_of(self, share: Share) -> int:
        """The round that made a share: with its cluster it tells the share from all others of the Placement."""
        return share.round or self.round

    def share_key(self, share: Share) -> ShareKey:
        """The key of one of its shares."""
        return ShareKey(share.cluster, self.round_of(share))

    def belongs_to(self, workload: Workload) -> bool:
        """Whether it was made for this very attempt of the Workload, which holds quota and is not over; or for its elastic job,
        of which another slice may have come before we have taken note of it, but not another attempt of the same one."""
        same = workload.uid == self.workload_uid and workload.attempt == self.attempt
        follows = self.job is not None and workload.gang_name == self.gang_name and workload.uid != self.workload_uid
        return (same or follows) and workload.holds_quota and not workload.finished

    def name_of_share(self, share: Share) -> str:
        """What the group Workload of a share is called, and its anchor."""
        return share_name(self.name, self.round_of(share))


def describe_shares(shares: Iterable[Share]) -> str:
    """`2 east, 2 west`: how many workers of some shares each cluster has or is asked for."""
    workers = Counter[str]()
    for share in shares:
        workers[share.cluster] += share.workers
    return ", ".join(f"{count} {cluster}" for cluster, count in workers.items())


def share_name(placement: str, round_: int) -> str:
    """What the share of a Placement is called that a round made: it is never made twice."""
    return f"{placement}-{round_}"


def parse_placement(raw: Raw) -> Placement:
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
    )


def _parse_code(text: object) -> ReasonCode | None:
    """The code of a plan; None where none is written, or that of another version."""
    return next((code for code in ReasonCode if code == text), None)


def _parse_job(raw: Raw, namespace: str) -> Job | None:
    """The elastic job: of any other its uid is not written down."""
    if not raw.get("uid"):
        return None
    return Job(raw.get("apiVersion") or "", raw.get("kind") or "", namespace, raw.get("name") or "", raw["uid"])


def gang_name_of(raw: Raw) -> str:
    """What the gang of a Placement is called, asked of each at every event."""
    spec = raw.get("spec") or {}
    job = spec.get("job") or {}
    return (
        elastic_gang_name(job.get("kind") or "", job["uid"])
        if job.get("uid")
        else (spec.get("workload") or {}).get("name") or ""
    )


def _parse_share(entry: Raw) -> Share:
    groups = (
        GroupShare(g.get("name") or "", g.get("role") or "", int(g.get("count") or 0))
        for g in entry.get("groups") or ()
    )
    preempts, single = bool(entry.get("preempts")), bool(entry.get("single"))
    return Share(entry.get("cluster") or "", tuple(groups), preempts, int(entry.get("round") or 0), single)


def _parse_exclusions(entries: Iterable[Raw]) -> Iterable[Exclusion]:
    for entry in entries:
        until = parse_time(entry.get("until"))
        if until:
            yield Exclusion(entry.get("cluster") or "", until, entry.get("reason") or "")


def placement_manifest(
    placement: Placement, job: Job | None, check: str, verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Write a Placement as the API server is to take it, all but its status; `placement` reads back the same.

    Beside what is read it tells people the job, the AdmissionCheck and what was found about each cluster. Texts are cut to
    what the schema allows, and so are the lists.
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
            "shares": [_share_spec(share) for share in placement.shares[:MAX_SHARES]],
            "lost": truncate(placement.lost_reason) or None,
            "considered": [_verdict_spec(verdict) for verdict in verdicts[:MAX_CONSIDERED_CLUSTERS]],
            "excluded": [_exclusion_spec(entry) for entry in placement.exclusions],
            "explanation": truncate(placement.explanation),
            "explanationCode": placement.code,
        },
    }


def placement_name(workload: Workload) -> str:
    """The attempt's Placement, or the elastic job's: a DNS name and a label value that begins with the job's name.

    Kueue leaves the label in the templates of an elastic job when it stops one, and would not start it with another value.
    """
    job = (workload.job.name if workload.job else workload.name)[:54].rstrip("-.")
    of = hashlib.sha256(workload.gang_name.encode()).hexdigest()[:8] if workload.elastic else workload.attempt
    return f"{job}-{of}".replace(".", "-")


def _elastic_job_identity(placement: Placement) -> dict[str, str]:
    return {"apiVersion": placement.job.api_version, "uid": placement.job.uid} if placement.job else {}


def _share_spec(share: Share) -> dict[str, Any]:
    preempts = {"preempts": True} if share.preempts else {}
    own = {"round": share.round} if share.round else {}
    single = {"single": True} if share.single_worker else {}
    return {"cluster": share.cluster, "groups": [asdict(group) for group in share.groups], **preempts, **own, **single}


def _exclusion_spec(entry: Exclusion) -> dict[str, str]:
    reason = truncate(entry.reason, MAX_ITEM_LENGTH)
    return {"cluster": entry.cluster, "until": format_time(entry.until), "reason": reason}


def _verdict_spec(verdict: Verdict) -> dict[str, Any]:
    """Field by field: `asdict` takes ten times as long, and each plan writes a hundred of them."""
    return {
        "cluster": verdict.cluster,
        "nominal": verdict.nominal,
        "borrow": verdict.borrow,
        "ever": verdict.potential,
        "chosen": verdict.chosen,
        "reason": truncate(verdict.reason, MAX_ITEM_LENGTH),
    }


def _owner_reference(placement: Placement) -> dict[str, Any]:
    """The Workload; of an elastic job the job itself, since Kueue may delete the slices that it has replaced."""
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
