"""What do the stores show of each worker cluster, and of what was promised there? The facts that a plan is made on.

It reads, and decides nothing: whether a cluster takes part, and what is deducted from what it shows, is for
`planning.capacity` to say. What one cluster shows may be of any shape, and is in no other cluster's way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from adapter import names
from adapter.admission.policy import Chosen
from adapter.objects import pod_requests, rayjob
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.rayjob import UNKNOWN_JOB
from adapter.objects.reservation import Reservation
from adapter.objects.specs import DispatchPolicy
from adapter.objects.unstructured import UNREADABLE, Raw, annotation
from adapter.objects.workload import PodSet, Workload
from adapter.planning import capacity
from adapter.planning.capacity import Held
from adapter.planning.plan_request import Candidate, Group, Request
from adapter.planning.rounds import Asking
from adapter.preflight import reachability
from adapter.quota import preemption, tree
from adapter.rewrite import group_workload
from adapter.rewrite.target import capped
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.dry_run_answers import Trials
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.targets import Targets
from adapter.shell.supervise import each


class Snapshot:
    """The gangs and the worker clusters as a planner sees them."""

    def __init__(
        self, manager: Manager, fleet: Fleet, policies: Policies, targets: Targets, shares: Shares, trials: Trials
    ) -> None:
        self._manager, self._fleet, self._trials = manager, fleet, trials
        self._policies, self._targets, self._shares = policies, targets, shares
        self._relieved: dict[
            str, tuple[tuple[object, ...], tree.Tree | None]
        ] = {}  # by cluster, and what it was found from

    def request(self, work: Workload, check: str, policy: DispatchPolicy | None = None) -> Request:
        """What a gang asks for; without a policy, only how its shares are charged."""
        zones = rayjob.zones(self._manager.job(work.job)) if work.job else {}
        podsets = self._policies.remote_podsets(work, check)
        groups = tuple(self._group(work, podset, zones.get(podset.name, "")) for podset in podsets)
        if policy is None:
            return Request(work.namespace, work.queue, groups)
        return Request(work.namespace, work.queue, groups, policy.strategy, policy.gang, policy.min_workers)

    def _group(self, work: Workload, podset: PodSet, zone: str) -> Group:
        kept, flavors = self._manager.beside(work), self._targets.flavors((podset,))
        held = self._manager.holds(work)  # what somebody only asks about leaves nothing behind
        group = kept.of((Snapshot, podset.name), (podset, *flavors), lambda: self._untried(podset, known=held))
        tried = self._trials.of(work, podset)
        return replace(group, tried=tried, zone=group.zone or zone) if tried or zone else group

    def _untried(self, podset: PodSet, *, known: bool) -> Group:
        spec = self._targets.reservation_template(podset)["spec"]
        zone = annotation(podset.template, names.ZONE_ANNOTATION)
        role = group_workload.role(podset.name)
        asked = pod_requests.pod_requests(spec)
        alike = pod_requests.alike(spec, asked) if known else ""
        return Group(podset.name, role, podset.count, spec, asked, zone, alike=alike)

    def least(self, work: Workload) -> Mapping[str, int] | None:
        """How many workers of each group an elastic job never has fewer of; None of any other, and while its job is not known."""
        job = self._manager.job(work.job) if work.elastic and work.job else UNKNOWN_JOB
        return rayjob.least(job) if job.is_known else None

    def asking(self, request: Request, chosen: Chosen | None, excluded: Sequence[Exclusion]) -> Asking:
        """Whom a gang asks for room, and whom it does not: without a policy, nobody."""
        return Asking(request, chosen.clusters, excluded, self._unproven(chosen)) if chosen else Asking(request)

    def _unproven(self, chosen: Chosen) -> dict[str, str]:
        """Why no preflight found the policy's clusters reachable, where it requires that."""
        if not chosen.policy.require_reachable:
            return {}
        found = {name: self._manager.worker_clusters.named(name) or {} for name in chosen.clusters}
        return {name: reachability.unproven(raw) for name, raw in found.items()}

    def relieved(self, order: Iterable[str], priority: int) -> dict[str, tree.Tree]:
        """The quota of those clusters in which Kueue may preempt gangs of lower priority, as it were without them; `priority` is the
        gang's own, which counts as far as each cluster lets it."""
        members = self._fleet.members()
        self._relieved = {name: kept for name, kept in self._relieved.items() if name in members}
        found = {name: self._without(members[name], priority) for name in order if name in members}
        return {name: one for name, one in found.items() if one}

    def _without(self, member: Member, priority: int) -> tree.Tree | None:
        """A cluster's quota without gangs of lower priority; None where there are none. Found once until something changes there:
        many that wait have the same priority."""
        there = capped(priority, member.spec.max_priority) or 0
        facts = there, member.tree, member.workloads.changes
        if self._relieved.get(member.name, ((), None))[0] != facts:
            queues = _relieved(member, there)
            made = tree.build(queues, member.cohorts, member.flavors, before=member.tree) if queues else None
            self._relieved[member.name] = facts, made
        return self._relieved[member.name][1]

    def fleet(self, clusters: Iterable[str], trees: Mapping[str, tree.Tree]) -> list[Candidate]:
        """The clusters as they stand; `trees`: quotas to be reckoned with instead of those of these clusters."""
        members, silent = self._fleet.members(), self._fleet.silent()
        return capacity.left(
            (_candidate(name, members.get(name), silent.get(name, "")) for name in clusters), trees, ()
        )

    def settles(self, now: datetime) -> datetime | None:
        """When the last share that is deducted and may be counted already is deducted no more."""
        held = (held for _, place in self._in_flight() for _, held in self._held(place, capacity.promised(place)))
        return capacity.settles(held, now)

    def owed(
        self, me: Workload, now: datetime, kept: Sequence[Share] = ()
    ) -> Iterator[tuple[Request, Sequence[Share]]]:
        """What the clusters do not count yet: what other gangs were promised, and what this one keeps."""
        for work, place in self._in_flight():
            shares = capacity.promised(place) if work.gang_key != me.gang_key else kept
            if uncounted := capacity.uncounted(self._held(place, shares), now):
                yield self.request(work, self._policies.check_of(work)), uncounted

    def _in_flight(self) -> Iterator[tuple[Workload, Placement]]:
        """The gangs that have shares, reserved or about to be."""
        for place in self._manager.placed():
            if not place.shares:
                continue  # as of a whole crowd that waits
            work = self._shares.workload_of(place) if capacity.promised(place) else None
            if work and not self._shares.leaving(work):  # else its shares go, and it plans no more
                yield work, place

    def _held(self, place: Placement, shares: Sequence[Share]) -> Iterator[tuple[Share, Held | None]]:
        """What stands for each share in its cluster, and how old the figures are there; None where nothing is seen of it."""
        found = {name: _standing(self._fleet.members().get(name), place) for name in {one.cluster for one in shares}}
        return ((share, found[share.cluster].get(place.round_of(share))) for share in shares)


def _candidate(name: str, member: Member | None, silent: str) -> Candidate:
    """A cluster as it stands; `silent` says why it cannot be seen, empty when it can."""
    spec, unmirrored = (member.spec, member.unmirrored) if member else (None, "")
    problem = capacity.problem(name, silent, spec, unmirrored)
    if member is None or problem:
        return capacity.absent(name, problem)
    return Candidate(
        name=name,
        problem="",
        tree=member.tree,
        queues=member.queues,
        namespaces=member.namespace_labels,
        zone=member.spec.zone or name,
        nodes=member.nodes,
        can_grow=member.spec.can_grow,
        pods=member.spec.pods,
    )


def _standing(member: Member | None, place: Placement) -> dict[int, Held]:
    """What stands for a Placement in one cluster, by round; what cannot be read stands for nothing, so it is deducted."""
    if member is None:
        return {}
    listed = each("share", member.workloads.group(f"{place.namespace}/{place.gang}"), partial(_as_of, member))
    return {found.round: held for _, (found, held) in listed if found.placement == place.name}


def _as_of(member: Member, raw: Raw) -> tuple[Reservation, Held]:
    found = member.reservation(raw)
    return found, Held(found.reserved_at, member.reserved_as_of(found), member.queue_version(found))


def _relieved(member: Member, priority: int) -> Sequence[Raw] | None:
    try:
        return preemption.relieved(member.cluster_queues, member.workloads, priority)
    except UNREADABLE:
        return None  # who can be preempted there is not known
