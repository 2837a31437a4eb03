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
from typing import Any, NamedTuple

from adapter import names
from adapter.objects.unstructured import LONGEST_OF_ONE, Raw, bounded, key_of, meta, moment, timestamp, uid_of
from adapter.objects.workload import Job, Workload, chain_name

# What the schema of a Placement allows: some fifty kilobytes, which are read at each event and written at each step, and in which
# an elastic job has one share for almost every worker. A gang in so many pieces goes without the next one, not without any plan.
MOST_SHARES = 500
MOST_CLUSTERS = 100  # of which it says what was found there


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
    single: bool = False  # the one worker on it came by itself, and takes the share along when it goes

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
    ever: int  # if nothing else ran there
    chosen: int
    reason: str  # why it gets none, or no more; empty when it gets all that it was asked for

    @property
    def fits(self) -> int:
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
    resource_version: str = ""
    unstarted: int = 0  # how often workers of the attempt did not start in time, and were to start elsewhere
    job: Job | None = None  # the elastic job that it stands for
    since: int = 0  # the first of the rounds that the last plan made; 0: it made one

    @property
    def gang(self) -> str:
        """What its gang is called (Workload.gang)."""
        return chain_name(self.job.kind, self.job.uid) if self.job else self.workload

    @property
    def withdrawing(self) -> bool:
        """The shares of this round are given up; they go first, then comes a new round."""
        return self.round > 0 and self.withdrawn_round >= self.round

    @property
    def live(self) -> tuple[Share, ...]:
        """The shares that are wanted: while a round is withdrawn only those that earlier ones left in place."""
        return tuple(share for share in self.shares if not (self.withdrawing and self.is_new(share)))

    def is_new(self, share: Share) -> bool:
        """Whether the last plan made a share: each share of a single worker is a round of its own."""
        return self.round_of(share) >= (self.since or self.round)

    def round_of(self, share: Share) -> int:
        """The round that made a share: with its cluster it tells the share from all others of the Placement."""
        return share.round or self.round

    def key_of(self, share: Share) -> ShareKey:
        """The key of one of its shares."""
        return ShareKey(share.cluster, self.round_of(share))

    def stands_for(self, work: Workload) -> bool:
        """Whether it was made for this very attempt of the Workload, which holds quota and is not over; or for its elastic job,
        of which another slice may have come before we have taken note of it, but not another attempt of the same one."""
        same = work.uid == self.workload_uid and work.attempt == self.attempt
        follows = self.job is not None and work.gang == self.gang and work.uid != self.workload_uid
        return (same or follows) and work.holds_quota and not work.finished

    def name_of(self, share: Share) -> str:
        """What the group Workload of a share is called, and its anchor."""
        return share_name(self.name, self.round_of(share))


def counted(shares: Iterable[Share]) -> str:
    """`2 east, 2 west`: how many workers of some shares each cluster has or is asked for."""
    workers = Counter[str]()
    for share in shares:
        workers[share.cluster] += share.workers
    return ", ".join(f"{count} {cluster}" for cluster, count in workers.items())


def share_name(placement: str, round_: int) -> str:
    """What the share of a Placement is called that a round made: it is never made twice."""
    return f"{placement}-{round_}"


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
        resource_version=str(meta(raw).get("resourceVersion") or ""),
        unstarted=int(spec.get("unstarted") or 0),
        job=_job(spec.get("job") or {}, namespace),
        since=int(spec.get("since") or 0),
    )


def _job(of: Raw, namespace: str) -> Job | None:
    """The elastic job: of any other its uid is not written down."""
    if not of.get("uid"):
        return None
    return Job(of.get("apiVersion") or "", of.get("kind") or "", namespace, of.get("name") or "", of["uid"])


def gang_of(raw: Raw) -> str:
    """What the gang of a Placement is called, asked of each at every event."""
    spec = raw.get("spec") or {}
    job = spec.get("job") or {}
    return (
        chain_name(job.get("kind") or "", job["uid"])
        if job.get("uid")
        else (spec.get("workload") or {}).get("name") or ""
    )


def _share(entry: Raw) -> Share:
    groups = (
        GroupShare(g.get("name") or "", g.get("role") or "", int(g.get("count") or 0))
        for g in entry.get("groups") or ()
    )
    preempts, single = bool(entry.get("preempts")), bool(entry.get("single"))
    return Share(entry.get("cluster") or "", tuple(groups), preempts, int(entry.get("round") or 0), single)


def _exclusions(entries: Iterable[Raw]) -> Iterable[Exclusion]:
    for entry in entries:
        until = moment(entry.get("until"))
        if until:
            yield Exclusion(entry.get("cluster") or "", until, entry.get("reason") or "")


def manifest(place: Placement, job: Job | None, check: str, considered: Sequence[Verdict]) -> dict[str, Any]:
    """Write a Placement as the API server is to take it, all but its status; `placement` reads back the same.

    Beside what is read it tells people the job, the AdmissionCheck and what was found about each cluster. Texts are cut to
    what the schema allows, and so are the lists.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": place.name, "namespace": place.namespace, "ownerReferences": [_owner_reference(place)]},
        "spec": {
            "workload": {"name": place.workload, "uid": place.workload_uid},
            "job": {**({"kind": job.kind, "name": job.name} if job else {}), **_chain(place)},
            "check": check,
            "attempt": place.attempt,
            "round": place.round,
            "since": place.since or None,
            "givenUp": place.given_up,
            "unstarted": place.unstarted,
            "plannedAt": place.planned_at and timestamp(place.planned_at),
            "wanted": place.wanted,
            "shares": [_share_spec(share) for share in place.shares[:MOST_SHARES]],
            "lost": bounded(place.lost) or None,
            "considered": [_verdict_spec(verdict) for verdict in considered[:MOST_CLUSTERS]],
            "excluded": [_exclusion_spec(entry) for entry in place.excluded],
            "explanation": bounded(place.explanation),
        },
    }


def placement_name(work: Workload) -> str:
    """The attempt's Placement, or the elastic job's: a DNS name and a label value that begins with the job's name.

    Kueue leaves the label in the templates of an elastic job when it stops one, and would not start it with another value.
    """
    job = (work.job.name if work.job else work.name)[:54].rstrip("-.")
    of = hashlib.sha256(work.gang.encode()).hexdigest()[:8] if work.elastic else work.attempt
    return f"{job}-{of}".replace(".", "-")


def _chain(place: Placement) -> dict[str, str]:
    return {"apiVersion": place.job.api_version, "uid": place.job.uid} if place.job else {}


def _share_spec(share: Share) -> dict[str, Any]:
    preempts = {"preempts": True} if share.preempts else {}
    own = {"round": share.round} if share.round else {}
    single = {"single": True} if share.single else {}
    return {"cluster": share.cluster, "groups": [asdict(group) for group in share.groups], **preempts, **own, **single}


def _exclusion_spec(entry: Exclusion) -> dict[str, str]:
    reason = bounded(entry.reason, LONGEST_OF_ONE)
    return {"cluster": entry.cluster, "until": timestamp(entry.until), "reason": reason}


def _verdict_spec(verdict: Verdict) -> dict[str, Any]:
    """Field by field: `asdict` takes ten times as long, and each plan writes a hundred of them."""
    return {
        "cluster": verdict.cluster,
        "nominal": verdict.nominal,
        "borrow": verdict.borrow,
        "ever": verdict.ever,
        "chosen": verdict.chosen,
        "reason": bounded(verdict.reason, LONGEST_OF_ONE),
    }


def _owner_reference(place: Placement) -> dict[str, Any]:
    """The Workload; of an elastic job the job itself, since Kueue may delete the slices that it has replaced."""
    job = place.job
    api_version, kind = (job.api_version, job.kind) if job else (names.KUEUE_API_VERSION, "Workload")
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": job.name if job else place.workload,
        "uid": job.uid if job else place.workload_uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
