"""What is known about one worker pod of the manager and its copies?

Reads the stores and builds the facts that worker/dispatch.py decides from. Clusters that cannot be seen contribute no copies.
"""

from collections.abc import Collection, Mapping

from adapter.admission.policy import share_lost_action, worker_lost_timeout
from adapter.objects import raycluster
from adapter.objects.placement import Placement
from adapter.objects.unstructured import Key, Raw, uid_of
from adapter.objects.worker_pod import Slot, is_planned_slot, may_get_slot, pull_secrets, slot_cluster, slot_of
from adapter.objects.workload import Workload
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.service_mirror import MirrorState
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.slots import SlotObserver
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.observe.transient_state import TransientState
from adapter.worker.cluster_loss import Silence
from adapter.worker.worker_facts import Worker, with_ray_labels


class WorkerObserver:
    """Reads facts about worker pods."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        reservations: ReservationObserver,
        targets: TargetBuilder,
        slots: SlotObserver,
        cluster_losses: ClusterLosses,
        transient: TransientState,
    ) -> None:
        self._manager, self._fleet, self._policies, self._transient = manager, fleet, policies, transient
        self._reservations, self._targets, self._slots, self._cluster_losses = (
            reservations,
            targets,
            slots,
            cluster_losses,
        )

    def facts(self, key: Key) -> Worker:
        """The facts about a worker pod of the manager and its copies."""
        pod, members = self._manager.pods.get(key), self._fleet.reachable()
        remotes = {name: found for name, member in members.items() if (found := member.pods.get(key))}
        stands_for = self._reservations.placement_of(pod) if pod else None
        came, pod = pod, self._slots.effective_pod(stands_for, pod) if pod and stands_for else pod
        near = _usable_caches(members, stands_for, pod) if pod and stands_for else {}
        work = self._reservations.workload_of(stands_for) if stands_for else None
        standing = (
            self._reservations.reservations_of_slot(stands_for, slot_of(pod)) if pod and work and stands_for else []
        )
        unmade = bool(pod and may_get_slot(pod, remotes))
        if unmade:  # only a copy that is made now is told of its flavor
            standing = [with_ray_labels(one, members[one.cluster].flavors.by_name) for one in standing]
        head = raycluster.find_head(pod, self._manager.heads.by_index(by_ray_cluster(pod))) if pod else None
        address = HeadAddress.from_pod(pod, str(head["status"]["podIP"]) if head else "") if pod else HeadAddress()
        return Worker(
            pod=pod,
            remotes=remotes,
            placement=stands_for if work else None,
            job=work.job if work else None,
            belongs=raycluster.belongs_to_job(pod, self._manager.ray_cluster_of(pod), work.job)
            if pod and work
            else None,
            head=address,
            reservations={one.key: one for one in standing},
            targets=self._targets.build_targets(near, work, stands_for.name) if work and stands_for else {},
            taken=self._taken_slots(pod, stands_for) if pod and stands_for and unmade else (),
            draining=self._fleet.draining(),
            silence=self._cluster_silence(pod, work) if pod and work else None,
            made=bool(pod and uid_of(pod) in self._transient.created_pods),
            sent=bool(pod and self._slots.may_have_been_sent(pod)),
            unanswered=bool(pod and uid_of(pod) in self._transient.unanswered_pods),
            head_pod=head,
            head_mirrors=_head_mirrors(address.service_key, members),
            pull_secrets=pull_secrets(pod, work) if pod and work else (),
            job_gone=bool(work and (work.deleting or self._reservations.job_presence(work) != "There")),
            slotless=bool(came and stands_for and pod is not came and is_planned_slot(stands_for, came, slot_of(came))),
            busy=self._transient.creations_in_flight > 0,
            restarts=self._restarts_on_loss(work) if work else False,
        )

    def pull_secrets_of(self, pod: Raw) -> tuple[Raw, ...]:
        """Those that the pod's template names, while its Workload holds quota."""
        place = self._reservations.placement_of(pod)
        work = self._reservations.workload_of(place) if place else None
        return pull_secrets(pod, work) if work else ()

    def _cluster_silence(self, pod: Raw, workload: Workload) -> Silence | None:
        """What is to be thought of a pod whose cluster cannot be seen."""
        cluster = slot_cluster(pod)
        if not cluster or cluster in self._fleet.reachable():
            return None
        chosen, _ = self._policies.policy_of(self._policies.check_of(workload))
        return self._cluster_losses.silence_of_pod(cluster, pod, worker_lost_timeout(chosen))

    def _taken_slots(self, pod: Raw, placement: Placement) -> Collection[Slot]:
        """The slots that others hold; none where the pod keeps its own: all are not read for each pod of a large gang."""
        slot = slot_of(pod)
        keeps = is_planned_slot(placement, pod, slot) and not self._slots.is_shared(pod)
        if keeps and not placement.exclusions:
            return ()
        taken = self._slots.taken_by_others(pod)
        return taken - {slot} if slot and slot in taken and self._slots.outranks_others(placement, pod) else taken

    def _restarts_on_loss(self, workload: Workload) -> bool:
        chosen, _ = self._policies.policy_of(self._policies.check_of(workload))
        return share_lost_action(chosen) == "Restart"


def _usable_caches(
    caches: Mapping[str, WorkerClusterCache], placement: Placement, pod: Raw
) -> dict[str, WorkerClusterCache]:
    """Those that a pod may run in: with a hundred clusters, all the others are not prepared for at each look."""
    clusters = {*(share.cluster for share in placement.active_shares), slot_cluster(pod)}
    return {name: member for name, member in caches.items() if name in clusters}


def _head_mirrors(service: Key | None, caches: Mapping[str, WorkerClusterCache]) -> dict[str, MirrorState]:
    found = {name: member.head_mirror(service) for name, member in caches.items()} if service else {}
    return {name: standing for name, standing in found.items() if standing}
