"""What must the rewriter know about the place that a worker is made for?

Read from the WorkerCluster and from the flavors of the manager. How a pod is rewritten for it is for the pure core to say.
"""

from collections.abc import Iterable, Mapping

from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite.group_workload import reserved_template
from adapter.rewrite.target import Target
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache

_NO_FLAVOR: Raw = {}  # a flavor that is not there, or says nothing: always the same one, so that it can be told (shell/kube/memo.py)


class TargetBuilder:
    """Makes targets for the shares of gangs."""

    def __init__(self, manager: ManagerCache, manager_id: str) -> None:
        self._manager, self._manager_id = manager, manager_id

    def build_targets(
        self, caches: Mapping[str, WorkerClusterCache], workload: Workload, placement: str
    ) -> dict[str, Target]:
        """What the rewriter must know about a share of a Placement, by its name, in each of these clusters; which round made it is
        not filled in."""
        flavors = self.flavor_specs(workload.podsets) if caches else ()
        return {
            name: Target.for_share(
                name,
                member.spec,
                queue=workload.queue,
                manager=self._manager_id,
                workload=workload.gang_name,
                workload_uid=workload.gang_uid,
                placement=placement,
                round_=0,
                flavors=flavors,
            )
            for name, member in caches.items()
        }

    def reservation_template(self, podset: PodSet) -> Raw:
        """A worker group's pod template as it is to be reserved, in whichever cluster."""
        return reserved_template(podset.template, self.clusterless_target(podset))

    def clusterless_target(self, podset: PodSet) -> Target:
        """What it must know of a worker group before it has a cluster."""
        return Target.without_cluster(self.flavor_specs((podset,)))

    def flavor_specs(self, podsets: Iterable[PodSet]) -> list[Raw]:
        """The specs of the flavors that Kueue assigned: another queue's flavor may have a key that a user of this one asks for."""
        assigned = sorted(frozenset[str]().union(*(podset.flavors for podset in podsets)))
        return [(self._manager.flavors.by_name(name) or _NO_FLAVOR).get("spec") or _NO_FLAVOR for name in assigned]
