"""How does a gang get its round: snapshot for the planner in, Placement object out.

One plan at a time, so that no two gangs are promised the same room: the next plan sees the Placements of all earlier
ones, and deducts what their clusters do not show as used yet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from adapter import names, planner, quota, reservation, shape
from adapter.actions import Plan
from adapter.facts import Exclusion, Key, Placement, Reservation, Workload, key_of, placement, timestamp, workload
from adapter.facts import reservation as read_reservation
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home
from adapter.shell.member import Member
from adapter.shell.observe import Observer

# Kueue writes a ClusterQueue's status in batches about a second apart (kueue.md 6.2): until then an admitted share is
# counted by us. Counting it twice for two seconds makes a plan too careful, never wrong.
STATUS_LAG = timedelta(seconds=3)


class Planning:
    """Makes plans from what the stores show."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer) -> None:
        self._home, self._fleet, self._observer = home, fleet, observer

    def body(self, action: Plan, now: datetime) -> dict[str, Any]:
        """Plan a gang and return its Placement object as it is to be written."""
        work, before = action.workload, action.placement
        check = self._observer.check_of(work)
        policy, _ = self._observer.policy(check)
        round_ = before.round + 1 if before else 1
        request = self._request(work, check)
        order = policy.clusters if policy else ()
        made = planner.plan(request, [self._candidate(name, action.excluded, work.key, now) for name in order])
        spec = {
            "workload": {"name": work.name, "uid": work.uid},
            "job": {"kind": work.job.kind, "name": work.job.name} if work.job else {},
            "check": check,
            "attempt": work.attempt,
            "round": round_,
            "plannedAt": timestamp(now),
            "wanted": request.workers,
            "shares": [{"cluster": s.cluster, "groups": [asdict(g) for g in s.groups]} for s in made.shares],
            "considered": [asdict(verdict) for verdict in made.verdicts],
            "excluded": [_exclusion(e) for e in action.excluded],
            "explanation": made.sentence,
        }
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.PLACEMENT_KIND,
            "metadata": {
                "name": placement_name(work),
                "namespace": work.namespace,
                "ownerReferences": [_owner(work)],
            },
            "spec": spec,
        }

    def _request(self, work: Workload, check: str) -> planner.Request:
        groups = []
        for podset in self._observer.remote_podsets(work, check):
            spec = self._observer.reservation_template(podset.template)["spec"]
            role = reservation.role(podset.name)
            groups.append(planner.Group(podset.name, role, podset.count, spec, shape.pod_requests(spec)))
        return planner.Request(work.namespace, work.queue, tuple(groups))

    def _candidate(self, name: str, excluded: Iterable[Exclusion], me: Key, now: datetime) -> planner.Candidate:
        member = self._fleet.members().get(name)
        problem = next((e.reason for e in excluded if e.cluster == name), "") or self._fleet.silent().get(name, "")
        if member is None or problem:
            nothing = quota.build((), (), ())
            return planner.Candidate(
                name,
                problem or f"there is no WorkerCluster {name}; create it",
                nothing,
                {},
                {},
            )
        if member.spec.cordoned:
            problem = "it is cordoned"
        return planner.Candidate(
            name=name,
            problem=problem,
            tree=self._charged(member, me, now),
            queues={key_of(queue): quota.leads_to(queue) for queue in member.local_queues},
            namespaces={n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in member.namespaces},
        )

    def _charged(self, member: Member, me: Key, now: datetime) -> quota.Tree:
        """The cluster's quota tree, with what we asked it for and it does not count yet."""
        tree = quota.build(member.cluster_queues, member.cohorts, member.flavors)
        for work, place in self._in_flight():
            if work.key != me:
                tree = self._charge(tree, member, work, place, now)
        return tree

    def _in_flight(self) -> Iterator[tuple[Workload, Placement]]:
        for raw in self._home.placements:
            place = placement(raw)
            owner = self._home.workloads.get((place.namespace, place.workload))
            work = workload(owner) if owner else None
            if work and work.attempt == place.attempt and work.holds_quota and not (work.finished or place.withdrawing):
                yield work, place

    def _charge(self, tree: quota.Tree, member: Member, work: Workload, place: Placement, now: datetime) -> quota.Tree:
        share = next((s for s in place.shares if s.cluster == member.name), None)
        queue = member.queue((work.namespace, work.queue))
        if share is None or not queue or _counted(member, place, now):
            return tree
        templates = {p.name: p.template for p in work.podsets}
        for group in share.groups:
            spec = self._observer.reservation_template(templates.get(group.name) or {})["spec"]
            request = shape.pod_requests(spec)
            tree = quota.charge(
                tree, queue, quota.room(tree, queue, request, spec, wanted=group.count), request, group.count
            )
        return tree


def placement_name(work: Workload) -> str:
    """The attempt's Placement: a DNS name and a label value that begins with the job's name."""
    job = (work.job.name if work.job else work.name)[:54].rstrip("-.")
    return f"{job}-{work.attempt}".replace(".", "-")


def _counted(member: Member, place: Placement, now: datetime) -> bool:
    """Whether the cluster's own figures hold this share already."""
    for raw in member.workloads.group(f"{place.namespace}/{place.workload}"):
        found: Reservation = read_reservation(member.name, raw)
        if found.placement == place.name and found.round == place.round and found.reserved_at:
            return now - found.reserved_at > STATUS_LAG
    return False


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
