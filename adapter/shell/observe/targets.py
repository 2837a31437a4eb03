"""Builds the rewriter's target: facts about a worker's cluster and share."""

from collections.abc import Iterable, Mapping

from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite.group_workload import reserved_template
from adapter.rewrite.target import Target
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache

# One object, because memos go by identity (shell/kube/memo.py).
_NO_FLAVOR: Raw = {}


class TargetBuilder:
    def __init__(self, manager: ManagerCache, manager_id: str) -> None:
        self._manager, self._manager_id = manager, manager_id

    def build_targets(
        self, caches: Mapping[str, WorkerClusterCache], workload: Workload, placement: str
    ) -> dict[str, Target]:
        """A share's targets by cluster, without a round; `placement`: the Placement's name."""
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
        """The pod template to reserve, independent of the cluster."""
        return reserved_template(podset.template, self.clusterless_target(podset))

    def clusterless_target(self, podset: PodSet) -> Target:
        return Target.without_cluster(self.flavor_specs((podset,)))

    def flavor_specs(self, podsets: Iterable[PodSet]) -> list[Raw]:
        """The specs of the flavors that Kueue assigned; others may have a key that a user of this queue selects on."""
        assigned = sorted(frozenset[str]().union(*(podset.flavors for podset in podsets)))
        return [(self._manager.flavors.by_name(name) or _NO_FLAVOR).get("spec") or _NO_FLAVOR for name in assigned]
