"""What must the rewriter know about the place that a worker is made for?

Read from the WorkerCluster and from the flavors of the manager. How a pod is rewritten for it is for the pure core to say.
"""

from collections.abc import Iterable, Mapping

from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite.group_workload import template
from adapter.rewrite.target import Target
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member

_NOTHING: Raw = {}  # a flavor that is not there, or says nothing: always the same one, so that it can be told (shell/kube/memo.py)


class Targets:
    """Makes targets for the shares of gangs."""

    def __init__(self, manager: Manager, manager_id: str) -> None:
        self._manager, self._manager_id = manager, manager_id

    def every(self, members: Mapping[str, Member], work: Workload, placement: str) -> dict[str, Target]:
        """What the rewriter must know about a share of a Placement, by its name, in each of these clusters; which round made it is
        not filled in."""
        flavors = self.flavors(work.podsets) if members else ()
        return {
            name: Target.of(
                name,
                member.spec,
                queue=work.queue,
                manager=self._manager_id,
                workload=work.gang,
                workload_uid=work.gang_uid,
                placement=placement,
                round_=0,
                flavors=flavors,
            )
            for name, member in members.items()
        }

    def reservation_template(self, podset: PodSet) -> Raw:
        """A worker group's pod template as it is to be reserved, in whichever cluster."""
        return template(podset.template, self.nowhere(podset))

    def nowhere(self, podset: PodSet) -> Target:
        """What it must know of a worker group before it has a cluster."""
        return Target.nowhere(self.flavors((podset,)))

    def flavors(self, podsets: Iterable[PodSet]) -> list[Raw]:
        """The specs of the flavors that Kueue assigned: another queue's flavor may have a key that a user of this one asks for."""
        assigned = sorted(frozenset[str]().union(*(podset.flavors for podset in podsets)))
        return [(self._manager.flavors.named(name) or _NOTHING).get("spec") or _NOTHING for name in assigned]
