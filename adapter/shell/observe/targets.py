"""What must the rewriter know about the place that a worker is made for?

Read from the WorkerCluster and from the flavors of the manager. How a pod is rewritten for it is for the pure core to say.
"""

from collections.abc import Iterable, Mapping

from adapter.objects.placement import Placement, share_name
from adapter.objects.raw import Raw
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite.groupworkload import template
from adapter.rewrite.target import Target
from adapter.shell.clusters.manager import Home
from adapter.shell.clusters.remote import Member


class Targets:
    """Makes targets for the shares of gangs."""

    def __init__(self, home: Home, manager: str) -> None:
        self._home, self._manager = home, manager

    def target(self, member: Member, work: Workload, place: Placement, round_: int) -> Target:
        """What the rewriter must know about the share that a round made in that cluster."""
        spec = member.spec
        return Target(
            cluster=member.name,
            zone=spec.zone or member.name,
            region=spec.region,
            labels=spec.labels,
            resources=spec.resources,
            head=spec.head,
            queue=work.queue,
            manager=self._manager,
            workload=work.name,
            workload_uid=work.uid,
            placement=place.name,
            share=share_name(place.name, round_),
            round=round_,
            pods=spec.pods,
            manager_flavor_keys=self._flavor_keys(work.podsets),
            manager_flavor_tolerations=self._flavor_tolerations(work.podsets),
        )

    def every(self, members: Mapping[str, Member], work: Workload, place: Placement) -> dict[str, Target]:
        """The same for whichever round in each of these clusters."""
        return {name: self.target(member, work, place, 0) for name, member in members.items()}

    def reservation_template(self, podset: PodSet) -> Raw:
        """A worker group's pod template as it is to be reserved, in whichever cluster."""
        nowhere = Target(
            cluster="",
            zone="",
            queue="",
            manager="",
            workload="",
            workload_uid="",
            placement="",
            share="",
            round=0,
            manager_flavor_keys=self._flavor_keys((podset,)),
            manager_flavor_tolerations=self._flavor_tolerations((podset,)),
        )
        return template(podset.template, nowhere)

    def _flavor_keys(self, podsets: Iterable[PodSet]) -> frozenset[str]:
        """The node labels that these podsets' flavors put on pods in the manager: they mean nothing elsewhere."""
        return frozenset(key for spec in self._flavors(podsets) for key in spec.get("nodeLabels") or {})

    def _flavor_tolerations(self, podsets: Iterable[PodSet]) -> tuple[dict[str, object], ...]:
        return tuple(one for spec in self._flavors(podsets) for one in spec.get("tolerations") or ())

    def _flavors(self, podsets: Iterable[PodSet]) -> list[Raw]:
        """The flavors that Kueue assigned: another queue's flavor may have a key that a user of this one asks for."""
        assigned = sorted(frozenset[str]().union(*(podset.flavors for podset in podsets)))
        return [(self._home.flavors.named(name) or {}).get("spec") or {} for name in assigned]
