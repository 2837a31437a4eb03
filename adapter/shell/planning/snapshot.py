"""What may a gang take in each worker cluster now: its own figures, less what others were promised and it does not count yet?

It reads stores only, and decides nothing: what a plan is made of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.admission.policy import Chosen
from adapter.objects import podrequests, specs
from adapter.objects.placement import Placement, Share, placement
from adapter.objects.raw import annotation
from adapter.objects.reservation import Reservation
from adapter.objects.reservation import reservation as read_reservation
from adapter.objects.workload import PodSet, Workload
from adapter.planning import planner
from adapter.planning.request import Candidate, Group, Request
from adapter.preflight import reachable
from adapter.quota import preemption, tree
from adapter.rewrite import groupworkload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager import Home
from adapter.shell.clusters.remote import Member
from adapter.shell.kube.store import version
from adapter.shell.observe.gangs import Observer

# Kueue writes a ClusterQueue's status a second late (docs/upstream.md, "A ClusterQueue's status lags"): until then an
# admitted share is counted by us. Counting it twice for two seconds makes a plan too careful, never wrong.
STATUS_LAG = timedelta(seconds=3)


class Room:
    """The worker clusters as a planner sees them."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer) -> None:
        self._home, self._fleet, self._observer = home, fleet, observer

    def request(self, work: Workload, check: str, policy: specs.DispatchPolicy | None = None) -> Request:
        """What a gang asks for; without a policy, only how its shares are charged."""
        groups = tuple(self._group(podset) for podset in self._observer.policies.remote_podsets(work, check))
        if policy is None:
            return Request(work.namespace, work.queue, groups)
        return Request(work.namespace, work.queue, groups, policy.strategy, policy.gang, policy.min_workers)

    def _group(self, podset: PodSet) -> Group:
        spec = self._observer.targets.reservation_template(podset)["spec"]
        zone = annotation(podset.template, names.ZONE_ANNOTATION)
        return Group(
            podset.name, groupworkload.role(podset.name), podset.count, spec, podrequests.pod_requests(spec), zone
        )

    def relieved(self, order: Iterable[str], priority: int) -> dict[str, tree.Tree]:
        """The quota of those clusters in which Kueue may preempt gangs of lower priority, as it were without them."""
        trees = {}
        for name in order:
            member = self._fleet.members().get(name)
            queues = member and preemption.relieved(member.cluster_queues, member.workloads, priority)
            if member and queues:
                trees[name] = tree.build(queues, member.cohorts, member.flavors, before=member.tree)
        return trees

    def left(
        self,
        order: Iterable[str],
        me: Workload,
        now: datetime,
        trees: Mapping[str, tree.Tree],
        kept: Sequence[Share] = (),
    ) -> list[Candidate]:
        """The clusters as they stand, less what they do not count yet: what other gangs were promised, and what this one keeps.

        `trees`: quotas to be reckoned with instead of those of these clusters.
        """
        fleet = [replace(one, tree=trees.get(one.name, one.tree)) for one in map(self._candidate, order)]
        for work, place in self._in_flight():
            shares = place.shares if work.key != me.key else kept
            uncounted = [share for share in shares if not self._counted(place, share, now)]
            if uncounted:
                fleet = planner.charged(self.request(work, self._observer.policies.check_of(work)), fleet, uncounted)
        return fleet

    def settles(self, me: Workload, now: datetime) -> datetime | None:
        """When the last share that is deducted and may be counted already is deducted no more."""
        held = (
            found.reserved_at + STATUS_LAG
            for work, place in self._in_flight()
            for share in place.shares
            if (member := self._fleet.members().get(share.cluster)) and (found := _standing(member, place, share))
            if found.reserved_at and not _counts(member, found, now)
        )
        return max(held, default=None)

    def _candidate(self, name: str) -> Candidate:
        member = self._fleet.members().get(name)
        problem = self._fleet.silent().get(name, "")
        if member is None:
            problem = problem or f"there is no WorkerCluster {name}; create it"
        elif member.spec.draining:
            problem = "it is draining"
        elif member.spec.cordoned:
            problem = "it is cordoned"
        elif not problem:
            problem = member.unmirrored
        if member is None or problem:
            return Candidate(name, problem, tree.build((), (), ()), {}, {})
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

    def allowed(self, chosen: Chosen, fleet: Iterable[Candidate]) -> list[Candidate]:
        """The same clusters; one that no preflight found reachable has a problem where the policy requires that."""
        if not chosen.policy.require_reachable:
            return list(fleet)
        return [replace(one, problem=one.problem or self._unproven(one.name)) for one in fleet]

    def _unproven(self, name: str) -> str:
        return reachable.unproven(self._home.worker_clusters.named(name) or {})

    def _in_flight(self) -> list[tuple[Workload, Placement]]:
        """The gangs that have shares, reserved or about to be."""
        found = []
        for raw in self._home.placements:
            place = placement(raw)
            work = self._observer.shares.workload_of(place) if place.shares and not place.withdrawing else None
            if work and not self._observer.leaving(work):  # else its shares go, and it plans no more
                found.append((work, place))
        return found

    def _counted(self, place: Placement, share: Share, now: datetime) -> bool:
        """Whether the cluster's own figures hold this share already."""
        member = self._fleet.members().get(share.cluster)
        found = member and _standing(member, place, share)
        return bool(member and found and _counts(member, found, now))


def _counts(member: Member, found: Reservation, now: datetime) -> bool:
    """Whether a cluster's figures hold a share: its queue was written after it, or it has had the time.

    Kueue writes a queue's status from what it has assumed already when it writes the Workload, and the versions of one
    cluster's objects come from one counter; where they do not, the time decides. A share from the future tells that the
    cluster's clock is wrong, and none there shall count twice for as long as that goes ahead.
    """
    if found.reserved_at is None:
        return False
    queue = member.cluster_queues.named(found.cluster_queue)
    return version(queue or {}) > member.reserved_as_of(found) or abs(now - found.reserved_at) >= STATUS_LAG


def _standing(member: Member, place: Placement, share: Share) -> Reservation | None:
    """What stands for a share in its cluster."""
    for raw in member.workloads.group(f"{place.namespace}/{place.workload}"):
        found = read_reservation(member.name, raw)
        if found.placement == place.name and found.round == place.round_of(share):
            return found
    return None
