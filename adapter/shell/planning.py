"""How does a gang get its round: snapshot for the planner in, Placement object out.

One plan at a time, so that no two gangs are promised the same room: the next plan sees the Placements of all earlier
ones, and deducts what their clusters do not show as used yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from adapter import api, checks, lifecycle, names, outrank, planner, quota, reservation, shape, turn
from adapter.actions import Plan
from adapter.candidate import Candidate, Group, Request
from adapter.facts import (
    Exclusion,
    Job,
    Placement,
    PodSet,
    Reservation,
    Share,
    Workload,
    annotation,
    is_true,
    placement,
    timestamp,
    workload,
)
from adapter.facts import reservation as read_reservation
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home
from adapter.shell.member import Member
from adapter.shell.memory import BACK_WITHIN, Memory
from adapter.shell.observe import Observer

# Kueue writes a ClusterQueue's status in batches about a second apart (kueue.md 6.2): until then an admitted share is
# counted by us. Counting it twice for two seconds makes a plan too careful, never wrong.
STATUS_LAG = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Hold:
    """Room that is kept from a gang: for whom, and when that pauses or ends."""

    job: Job | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with what it was made of, and what is to be said beside its own sentence."""

    request: Request
    fleet: Sequence[Candidate]  # in the policy's order, as the plan found them
    plan: planner.Plan
    more: str
    eases: datetime | None = None  # when the first of those that keep room from it keeps none


class Planning:
    """Makes plans from what the stores show; it writes nothing, neither to them nor elsewhere."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer, memory: Memory) -> None:
        self._home, self._fleet, self._observer, self._memory = home, fleet, observer, memory

    def body(self, action: Plan, now: datetime) -> tuple[dict[str, Any], planner.Plan, datetime | None]:
        """Plan a gang; returns its Placement object as it is to be written, the plan, and when to plan again unasked.

        Only a gang that found no room is planned again so.
        A share that a cluster may count already is deducted once more for STATUS_LAG: a gang that did not fit for that
        reason would else wait until something changes, which may be hours. So would one from which room is kept, when that
        ends.
        """
        work, before = action.workload, action.placement
        check = self._observer.check_of(work)
        chosen, _ = self._observer.policy(check)
        found = self.plan(work, check, chosen, action.excluded, now)
        made = found.plan
        spec = {
            "workload": {"name": work.name, "uid": work.uid},
            "job": {"kind": work.job.kind, "name": work.job.name} if work.job else {},
            "check": check,
            "attempt": work.attempt,
            "round": before.round + 1 if before else 1,
            "givenUp": before.given_up + before.withdrawing if before else 0,
            "plannedAt": timestamp(now),
            "wanted": found.request.workers,
            "shares": [_share(s) for s in made.shares],
            "considered": [asdict(verdict) for verdict in made.verdicts],
            "excluded": [_exclusion(e) for e in action.excluded],
            "explanation": made.sentence + found.more,
        }
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.PLACEMENT_KIND,
            "metadata": {
                "name": placement_name(work),
                "namespace": work.namespace,
                "ownerReferences": [_owner(work)],
            },
            "spec": spec,
        }
        moments = [] if made.shares else [when for when in (self._settles(work, now), found.eases) if when]
        return body, made, min(moments, default=None)

    def plan(
        self, work: Workload, check: str, chosen: checks.Chosen | None, excluded: Iterable[Exclusion], now: datetime
    ) -> Made:
        """Plan a gang on the clusters as they stand, after those whose turn comes before its own."""
        request = self._request(work, check, chosen.policy if chosen else None)
        order = chosen.clusters if chosen else ()
        earlier = [(one, theirs) for one in turn.before(work, self._waiting(now)) if (theirs := self._policy_of(one))]
        fleet, holds = self._left_for(work, order, earlier, excluded, now)
        made = planner.plan(request, fleet)
        kept_for = [f"{hold.job.kind} {hold.job.name}" for hold in holds if hold.job]
        if not made.shares and (trees := self._relieved(order, work.priority or 0)):
            freed, more = self._left_for(work, order, earlier, excluded, now, trees)
            over, holds = planner.outranking(request, fleet, freed), [*holds, *more]
            made = over if over.shares else made
        kept = f" Room is kept for {', '.join(kept_for)}, which waited longer." if kept_for and not made.shares else ""
        return Made(request, fleet, made, kept, min((hold.until for hold in holds), default=None))

    def _request(self, work: Workload, check: str, policy: api.DispatchPolicy | None) -> Request:
        groups = tuple(self._group(podset) for podset in self._observer.remote_podsets(work, check))
        if policy is None:
            return Request(work.namespace, work.queue, groups)
        return Request(work.namespace, work.queue, groups, policy.strategy, policy.gang, policy.min_workers)

    def _group(self, podset: PodSet) -> Group:
        spec = self._observer.reservation_template(podset)["spec"]
        zone = annotation(podset.template, names.ZONE_ANNOTATION)
        return Group(podset.name, reservation.role(podset.name), podset.count, spec, shape.pod_requests(spec), zone)

    def _left_for(
        self,
        work: Workload,
        order: Sequence[str],
        earlier: Sequence[tuple[turn.Waiting, checks.Chosen]],
        excluded: Iterable[Exclusion],
        now: datetime,
        trees: Mapping[str, quota.Tree] | None = None,
    ) -> tuple[list[Candidate], list[Hold]]:
        """What a gang may take in its policy's clusters, after those whose turn is earlier, and who of them keeps room.

        `trees`: quotas to be reckoned with instead of those of these clusters.
        """
        # Those before it go where their own policies send them, which may be to clusters that this gang does not ask.
        involved = dict.fromkeys([*order, *(name for _, theirs in earlier for name in theirs.clusters)])
        fleet, holds = self._after_others(earlier, self._fleet_now(involved, work, now, trees or {}), now)
        return _without((one for one in fleet if one.name in order), excluded), holds

    def _relieved(self, order: Iterable[str], priority: int) -> dict[str, quota.Tree]:
        """The quota of those clusters in which Kueue may preempt gangs of lower priority, as it were without them."""
        trees = {}
        for name in order:
            member = self._fleet.members().get(name)
            queues = member and outrank.relieved(member.cluster_queues, member.workloads, priority)
            if member and queues:
                trees[name] = quota.build(queues, member.cohorts, member.flavors)
        return trees

    def _fleet_now(
        self, order: Iterable[str], me: Workload, now: datetime, trees: Mapping[str, quota.Tree]
    ) -> list[Candidate]:
        """The clusters as they stand, with what other gangs were promised there and they do not count yet."""
        fleet = [replace(one, tree=trees.get(one.name, one.tree)) for one in map(self._candidate, order)]
        for work, place in self._in_flight():
            if work.key != me.key:
                uncounted = [share for share in place.shares if not self._counted(place, share.cluster, now)]
                fleet = planner.charged(self._request(work, self._observer.check_of(work), None), fleet, uncounted)
        return fleet

    def _settles(self, me: Workload, now: datetime) -> datetime | None:
        """When the last share that is deducted and may be counted already is deducted no more."""
        held = (
            found.reserved_at + STATUS_LAG
            for work, place in self._in_flight()
            if work.key != me.key
            for share in place.shares
            if (member := self._fleet.members().get(share.cluster)) and (found := _standing(member, place))
            if found.reserved_at and not _settled(found, now)
        )
        return max(held, default=None)

    def _after_others(
        self, earlier: Iterable[tuple[turn.Waiting, checks.Chosen]], fleet: list[Candidate], now: datetime
    ) -> tuple[list[Candidate], list[Hold]]:
        """What is left for a gang once those whose turn comes first have taken what they can, and who holds room back."""
        holds = []
        for one, chosen in earlier:
            request = self._request(one.work, self._observer.check_of(one.work), chosen.policy)
            theirs = [candidate for name in chosen.clusters for candidate in fleet if candidate.name == name]
            theirs = _without(theirs, one.excluded)
            shares: Sequence[Share] = () if one.looked else planner.plan(request, theirs).shares
            if not shares and (until := turn.holds_until(one, now)) and (shares := planner.keep(request, theirs)):
                holds.append(Hold(one.work.job, until))
            fleet = planner.charged(request, fleet, shares)
        return fleet, holds

    def _policy_of(self, one: turn.Waiting) -> checks.Chosen | None:
        """How a waiting gang is going to be planned; None when it is not, so that it takes nothing from anybody."""
        check = self._observer.check_of(one.work)
        chosen, problem = self._observer.policy(check)
        stuck = not chosen or problem or self._observer.rivals(one.work)
        return None if stuck or self._observer.refusal(one.work, check, chosen) else chosen

    def _waiting(self, now: datetime) -> list[turn.Waiting]:
        """The gangs that hold the manager's quota and have no share, or are giving back those that they had; and who was one
        of them a moment ago."""
        placed = {(place.workload_uid, place.attempt): place for place in map(placement, self._home.placements)}
        found = []
        for raw in self._home.workloads:
            if not is_true(raw, names.QUOTA_RESERVED) or is_true(raw, names.FINISHED):
                continue
            work = workload(raw)
            check = self._observer.check_of(work)
            if not check or not work.holds_quota or work.checks[check].state != names.CHECK_PENDING:
                continue
            current = placed.get((work.uid, work.attempt))
            if current is None or current.withdrawing or not current.shares:
                of = current.uid if current and not current.withdrawing else ""
                looked = self._memory.looked(of, self._fleet.room_version, now)
                found.append(turn.Waiting(work, looked, lifecycle.excluded(current, now)))
        return [*found, *self._aside(now)]

    def _aside(self, now: datetime) -> Iterable[turn.Waiting]:
        """The gangs that stepped aside just now: they take nothing, but keep what they gathered.

        As they were then. Their Workloads do not show the flavors any more, nor a check that is limited to some of them,
        nor, once they are back in the queue, that they had left it.
        """
        for work, since in self._memory.aside.values():
            raw = self._home.workloads.get(work.key)
            current = workload(raw) if raw else None
            if current is None or current.uid != work.uid or current.deleted:
                continue
            back = current.holds_quota and self._observer.check_of(current)
            if not back and now < since + BACK_WITHIN:
                yield turn.Waiting(work, looked=True, until=since + BACK_WITHIN)

    def _candidate(self, name: str) -> Candidate:
        member = self._fleet.members().get(name)
        problem = self._fleet.silent().get(name, "")
        if member is None:
            problem = problem or f"there is no WorkerCluster {name}; create it"
        elif member.spec.cordoned:
            problem = "it is cordoned"
        if member is None or problem:
            return Candidate(name, problem, quota.build((), (), ()), {}, {})
        return Candidate(
            name=name,
            problem="",
            tree=member.tree,
            queues=member.queues,
            namespaces=member.namespace_labels,
            zone=member.spec.zone or name,
            nodes=member.nodes,
            can_grow=member.spec.can_grow,
        )

    def _in_flight(self) -> list[tuple[Workload, Placement]]:
        """The gangs that have shares, reserved or about to be."""
        found = []
        for raw in self._home.placements:
            place = placement(raw)
            owner = self._home.workloads.get((place.namespace, place.workload)) if place.shares else None
            work = workload(owner) if owner else None
            if work and work.attempt == place.attempt and work.holds_quota and not (work.finished or place.withdrawing):
                found.append((work, place))
        return found

    def _counted(self, place: Placement, cluster: str, now: datetime) -> bool:
        """Whether the cluster's own figures hold this share already."""
        member = self._fleet.members().get(cluster)
        return member is not None and _counts(member, place, now)


def _without(fleet: Iterable[Candidate], excluded: Iterable[Exclusion]) -> list[Candidate]:
    reasons = {e.cluster: e.reason for e in excluded}
    return [replace(one, problem=reasons.get(one.name) or one.problem) for one in fleet]


def placement_name(work: Workload) -> str:
    """The attempt's Placement: a DNS name and a label value that begins with the job's name."""
    job = (work.job.name if work.job else work.name)[:54].rstrip("-.")
    return f"{job}-{work.attempt}".replace(".", "-")


def _counts(member: Member, place: Placement, now: datetime) -> bool:
    found = _standing(member, place)
    return found is not None and found.reserved_at is not None and _settled(found, now)


def _settled(found: Reservation, now: datetime) -> bool:
    """Whether the cluster has had the time to count a share. One from the future tells that its clock is wrong, and no
    share there shall count twice for as long as it goes ahead."""
    return found.reserved_at is not None and abs(now - found.reserved_at) >= STATUS_LAG


def _standing(member: Member, place: Placement) -> Reservation | None:
    """The share of this round that stands in a cluster."""
    for raw in member.workloads.group(f"{place.namespace}/{place.workload}"):
        found = read_reservation(member.name, raw)
        if found.placement == place.name and found.round == place.round:
            return found
    return None


def _share(share: Share) -> dict[str, Any]:
    preempts = {"preempts": True} if share.preempts else {}
    return {"cluster": share.cluster, "groups": [asdict(group) for group in share.groups], **preempts}


def _exclusion(entry: Exclusion) -> dict[str, str]:
    return {"cluster": entry.cluster, "until": timestamp(entry.until), "reason": entry.reason}


def _owner(work: Workload) -> dict[str, Any]:
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "name": work.name,
        "uid": work.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
