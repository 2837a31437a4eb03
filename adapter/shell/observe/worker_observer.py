"""What is known about one worker pod of the manager and its copies?

Reads the stores and builds the facts that worker/dispatch.py decides from. Clusters that cannot be seen contribute no copies.
"""

from collections.abc import Collection, Mapping

from adapter.admission.policy import lost_after, when_share_lost
from adapter.objects import raycluster
from adapter.objects.placement import Placement
from adapter.objects.unstructured import Key, Raw, uid_of
from adapter.objects.worker_pod import Slot, is_planned_slot, may_get_slot, pull_secrets, slot_cluster, slot_of
from adapter.objects.workload import Workload
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.service_mirror import Standing
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.observe.cluster_losses import Losses
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.slots import Slots
from adapter.shell.observe.targets import Targets
from adapter.shell.observe.transient_state import Memory
from adapter.worker.cluster_loss import Silence
from adapter.worker.worker_facts import Worker, with_ray_labels


class Workers:
    """Reads facts about worker pods."""

    def __init__(
        self,
        manager: Manager,
        fleet: Fleet,
        policies: Policies,
        shares: Shares,
        targets: Targets,
        slots: Slots,
        losses: Losses,
        memory: Memory,
    ) -> None:
        self._manager, self._fleet, self._policies, self._memory = manager, fleet, policies, memory
        self._shares, self._targets, self._slots, self._losses = shares, targets, slots, losses

    def facts(self, key: Key) -> Worker:
        """The facts about a worker pod of the manager and its copies."""
        pod, members = self._manager.pods.get(key), self._fleet.seen()
        remotes = {name: found for name, member in members.items() if (found := member.pods.get(key))}
        stands_for = self._shares.placement_of(pod) if pod else None
        came, pod = pod, self._slots.effective_pod(stands_for, pod) if pod and stands_for else pod
        near = _near(members, stands_for, pod) if pod and stands_for else {}
        work = self._shares.workload_of(stands_for) if stands_for else None
        standing = self._shares.under(stands_for, slot_of(pod)) if pod and work and stands_for else []
        unmade = bool(pod and may_get_slot(pod, remotes))
        if unmade:  # only a copy that is made now is told of its flavor
            standing = [with_ray_labels(one, members[one.cluster].flavors.named) for one in standing]
        head = raycluster.head(pod, self._manager.heads.group(by_ray_cluster(pod))) if pod else None
        address = HeadAddress.of(pod, str(head["status"]["podIP"]) if head else "") if pod else HeadAddress()
        return Worker(
            pod=pod,
            remotes=remotes,
            placement=stands_for if work else None,
            job=work.job if work else None,
            belongs=raycluster.belongs(pod, self._manager.ray_cluster(pod), work.job) if pod and work else None,
            head=address,
            reservations={one.key: one for one in standing},
            targets=self._targets.every(near, work, stands_for.name) if work and stands_for else {},
            taken=self._taken(pod, stands_for) if pod and stands_for and unmade else (),
            draining=self._fleet.draining(),
            silence=self._silence(pod, work) if pod and work else None,
            made=bool(pod and uid_of(pod) in self._memory.made),
            sent=bool(pod and self._slots.may_have_been_sent(pod)),
            unanswered=bool(pod and uid_of(pod) in self._memory.unanswered),
            head_pod=head,
            head_mirrors=_head_mirrors(address.service, members),
            pull_secrets=pull_secrets(pod, work) if pod and work else (),
            job_gone=bool(work and (work.deleted or self._shares.job_of(work) != "There")),
            slotless=bool(came and stands_for and pod is not came and is_planned_slot(stands_for, came, slot_of(came))),
            busy=self._memory.making > 0,
            restarts=self._restarts(work) if work else False,
        )

    def pull_secrets(self, pod: Raw) -> tuple[Raw, ...]:
        """Those that the pod's template names, while its Workload holds quota."""
        place = self._shares.placement_of(pod)
        work = self._shares.workload_of(place) if place else None
        return pull_secrets(pod, work) if work else ()

    def _silence(self, pod: Raw, work: Workload) -> Silence | None:
        """What is to be thought of a pod whose cluster cannot be seen."""
        cluster = slot_cluster(pod)
        if not cluster or cluster in self._fleet.seen():
            return None
        chosen, _ = self._policies.policy(self._policies.check_of(work))
        return self._losses.of_pod(cluster, pod, lost_after(chosen))

    def _taken(self, pod: Raw, place: Placement) -> Collection[Slot]:
        """The slots that others hold; none where the pod keeps its own: all are not read for each pod of a large gang."""
        slot = slot_of(pod)
        keeps = is_planned_slot(place, pod, slot) and not self._slots.is_shared(pod)
        if keeps and not place.excluded:
            return ()
        taken = self._slots.taken_by_others(pod)
        return taken - {slot} if slot and slot in taken and self._slots.outranks_others(place, pod) else taken

    def _restarts(self, work: Workload) -> bool:
        chosen, _ = self._policies.policy(self._policies.check_of(work))
        return when_share_lost(chosen) == "Restart"


def _near(members: Mapping[str, Member], place: Placement, pod: Raw) -> dict[str, Member]:
    """Those that a pod may run in: with a hundred clusters, all the others are not prepared for at each look."""
    clusters = {*(share.cluster for share in place.live), slot_cluster(pod)}
    return {name: member for name, member in members.items() if name in clusters}


def _head_mirrors(service: Key | None, members: Mapping[str, Member]) -> dict[str, Standing]:
    found = {name: member.head_mirror(service) for name, member in members.items()} if service else {}
    return {name: standing for name, standing in found.items() if standing}
