"""Reads the facts about one worker pod for worker/dispatch.py; leaves out remote pods in unreachable clusters."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from adapter.admission.policy import share_lost_action, worker_lost_timeout
from adapter.objects import raycluster
from adapter.objects.placement import Placement
from adapter.objects.replica import leaves_replica
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
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.slots import SlotObserver
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.observe.transient_state import TransientState
from adapter.worker.cluster_loss import ClusterLoss
from adapter.worker.worker_facts import (
    CreationFacts,
    HeadFacts,
    OwnerFacts,
    SlotChoiceFacts,
    Worker,
    WorkerClusterFacts,
    with_ray_labels,
)


@dataclass(frozen=True, slots=True)
class _WorkerObjects:
    members: Mapping[str, WorkerClusterCache]  # reachable
    pod: Raw | None  # without its template slot if that is not its own
    pod_with_template_slot: Raw | None  # as stored
    remote_pods: Mapping[str, Raw]
    placement: Placement | None
    workload: Workload | None
    may_get_slot: bool  # a remote pod may be created for it now


class WorkerObserver:
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
        self._drains = DrainObserver(manager, fleet)
        self._reservations, self._targets, self._slots, self._cluster_losses = (
            reservations,
            targets,
            slots,
            cluster_losses,
        )

    def facts(self, key: Key) -> Worker:
        objects = self._read(key)
        return Worker(
            pod=objects.pod,
            remote_pods=objects.remote_pods,
            placement=objects.placement if objects.workload else None,
            owner=self._owner_facts(objects),
            clusters=self._cluster_facts(objects),
            slots=self._slot_choice_facts(objects),
            creation=self._creation_facts(objects.pod),
            head=self._head_facts(objects),
        )

    def _read(self, key: Key) -> _WorkerObjects:
        stored_pod, members = self._manager.pods.get(key), self._fleet.reachable(key[0])
        placement = self._reservations.placement_of(stored_pod) if stored_pod else None
        pod = self._slots.effective_pod(placement, stored_pod) if stored_pod and placement else stored_pod
        remote_pods = {name: remote for name, member in members.items() if (remote := member.pods.get(key))}
        return _WorkerObjects(
            members=members,
            pod=pod,
            pod_with_template_slot=stored_pod,
            remote_pods=remote_pods,
            placement=placement,
            workload=self._reservations.workload_of(placement) if placement else None,
            may_get_slot=pod is not None and may_get_slot(pod, remote_pods),
        )

    def _owner_facts(self, objects: _WorkerObjects) -> OwnerFacts:
        pod, workload = objects.pod, objects.workload
        if workload is None:
            return self._ended_owner_facts(objects)
        check = self._policies.check_of(workload)
        relay, relay_image = self._policies.relay_of(workload, check)
        return OwnerFacts(
            job=workload.job,
            owns_pod=self._owns_pod(pod, workload),
            relay=relay,
            relay_image=relay_image,
            relay_key=self._policies.started_key(workload, check),
            relay_key_problem=self._policies.relay_key_problem(workload, check),
            finished=False,
            deleted=workload.deleting or self._reservations.job_presence(workload) != "There",
            restarts_on_share_loss=self._restarts_on_share_loss(workload),
            pull_secrets=pull_secrets(pod, workload) if pod else (),
        )

    def _ended_owner_facts(self, objects: _WorkerObjects) -> OwnerFacts:
        """The facts of a pod without a Workload that holds quota: only a finished Workload is known to have ended."""
        placement, pod = objects.placement, objects.pod
        finished = self._reservations.finished_workload_of(placement) if placement else None
        return OwnerFacts(
            job=finished.job if finished else None,
            owns_pod=self._owns_pod(pod, finished) if finished else None,
            finished=finished is not None,
            deleted=False,
            restarts_on_share_loss=False,
            pull_secrets=(),
        )

    def _owns_pod(self, pod: Raw | None, workload: Workload) -> bool | None:
        return raycluster.belongs_to_job(pod, self._manager.ray_cluster_of(pod), workload.job) if pod else None

    def _cluster_facts(self, objects: _WorkerObjects) -> WorkerClusterFacts:
        pod, placement, workload = objects.pod, objects.placement, objects.workload
        reservations = (
            self._reservations.reservations_of_slot(placement, slot_of(pod)) if pod and workload and placement else []
        )
        if objects.may_get_slot:  # only a remote pod created now gets its flavor's labels
            members = objects.members
            reservations = [with_ray_labels(r, members[r.cluster].flavors.by_name) for r in reservations]
        candidates = _candidates(objects.members, placement, pod) if pod and placement else {}
        return WorkerClusterFacts(
            reservations={r.key: r for r in reservations},
            targets=self._targets.build_targets(candidates, workload, placement.name) if workload and placement else {},
            draining=self._drains.clusters_of(workload.job if workload else None),
            loss=self._cluster_loss(pod, workload) if pod and workload else None,
            reachable=pod is not None and slot_cluster(pod) in objects.members,
            clocks=self._fleet.clock_offsets([slot_cluster(pod)] if pod else [], self._manager.clock),
        )

    def _slot_choice_facts(self, objects: _WorkerObjects) -> SlotChoiceFacts:
        pod, placement, stored_pod = objects.pod, objects.placement, objects.pod_with_template_slot
        is_without_slot = stored_pod is not None and pod is not stored_pod
        lost_template_slot = bool(
            stored_pod and placement and is_without_slot and is_planned_slot(placement, stored_pod, slot_of(stored_pod))
        )
        if not (pod and placement and objects.may_get_slot):
            return SlotChoiceFacts(taken=(), lost_template_slot=lost_template_slot)
        joined, yields_block = self._slots.joined_slot(placement, pod), self._slots.yields_block(placement, pod)
        taken = self._taken_slots(pod, placement, joined, yields_block)
        withheld_for = self._transient.withheld_for(placement.uid, uid_of(pod))
        return SlotChoiceFacts(taken, lost_template_slot, joined, yields_block, withheld_for)

    def _creation_facts(self, pod: Raw | None) -> CreationFacts:
        memory = self._transient
        return CreationFacts(
            created=pod is not None and uid_of(pod) in memory.created_pods,
            may_exist_unobserved=pod is not None and self._slots.may_have_been_sent(pod),
            unanswered=pod is not None and uid_of(pod) in memory.unanswered_pods,
            creating_pods=memory.creations_in_flight > 0,
        )

    def _head_facts(self, objects: _WorkerObjects) -> HeadFacts:
        pod = objects.pod
        if pod is None:
            return HeadFacts(address=HeadAddress(), pod=None, mirrors={})
        head = raycluster.find_head(pod, self._manager.heads.by_index(by_ray_cluster(pod)))
        address = HeadAddress.from_pod(pod, str(head["status"]["podIP"]) if head else "")
        return HeadFacts(address=address, pod=head, mirrors=_head_mirrors(address.service_key, objects.members))

    def pull_secrets_of(self, pod: Raw) -> tuple[Raw, ...]:
        """The pull Secrets of a pod's template, while its Workload holds quota."""
        placement = self._reservations.placement_of(pod)
        workload = self._reservations.workload_of(placement) if placement else None
        return pull_secrets(pod, workload) if workload else ()

    def _cluster_loss(self, pod: Raw, workload: Workload) -> ClusterLoss | None:
        cluster = slot_cluster(pod)
        if not cluster or cluster in self._fleet.reachable(workload.namespace):
            return None
        policy, _ = self._policies.policy_of(self._policies.check_of(workload))
        return self._cluster_losses.silence_of_pod(cluster, pod, worker_lost_timeout(policy))

    def _taken_slots(self, pod: Raw, placement: Placement, joined: Slot | None, yields_block: bool) -> Collection[Slot]:
        """The slots of other pods; empty if the pod keeps its own, because reading all is slow in a large gang."""
        slot = slot_of(pod)
        keeps_slot = is_planned_slot(placement, pod, slot) and not self._slots.is_shared(pod)
        keeps_slot = keeps_slot and not yields_block and not leaves_replica(placement, pod, slot, joined)
        if keeps_slot and not placement.exclusions:
            return ()
        taken = self._slots.taken_by_others(pod)
        return taken - {slot} if slot and slot in taken and self._slots.outranks_others(placement, pod) else taken

    def _restarts_on_share_loss(self, workload: Workload) -> bool:
        policy, _ = self._policies.policy_of(self._policies.check_of(workload))
        return share_lost_action(policy) == "Restart"


def _candidates(
    members: Mapping[str, WorkerClusterCache], placement: Placement, pod: Raw
) -> dict[str, WorkerClusterCache]:
    """The caches of clusters that the pod may run in: all of a hundred at each reconcile would be slow."""
    clusters = {*(share.cluster for share in placement.active_shares), slot_cluster(pod)}
    return {name: member for name, member in members.items() if name in clusters}


def _head_mirrors(service: Key | None, caches: Mapping[str, WorkerClusterCache]) -> dict[str, MirrorState]:
    mirrors = {name: member.head_mirror(service) for name, member in caches.items()} if service else {}
    return {name: mirror for name, mirror in mirrors.items() if mirror}
