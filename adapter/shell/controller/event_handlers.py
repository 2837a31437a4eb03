"""Which keys want a look when something changes: the only use we make of an event.

What a key's decision reads must wake it here; what is missed is caught by the resync. Nothing here reads a body for
more than finding those keys.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from adapter import names
from adapter.actions import Action, DryRunPod, Reserve
from adapter.admission.cluster_identity import recorded_uid
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import Key, Raw, annotation, controller_uid, key_of, label, meta, parse_number, uid_of
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    is_deleting,
    slot_of,
    slot_share,
    waits_for_quota,
    worker_group_of,
)
from adapter.preflight.reachability import unproven_reason
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import IN_DOUBT, by_placement, by_ray_cluster, by_selected_ray_cluster, in_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.controller import predicates
from adapter.shell.controller.enqueue import (
    ANCHOR,
    BURST_SECONDS,
    CAPACITY_SECONDS,
    CHECK,
    CLUSTER,
    GANG,
    POD,
    POLICY,
    SERVICE,
    Enqueuer,
    QueueKey,
)
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.kube.store import ChangeHandler, Store
from adapter.shell.observe.replan import ReplanCheck, cohort_tree_of
from adapter.shell.rate_limit import TokenBucket
from adapter.shell.supervise import contain_errors
from adapter.shell.write.anchors import RECHECK_SECONDS
from adapter.worker import service_endpoints

# How often a worker cluster may wake the whole fleet: five losses and returns in a row as they come, as of a link that flaps; then
# as often as it takes a cluster to count as steady. One whose watches are refused and allowed in turn would else do so twice a second.
CONTACT_BURST, CONTACT_SECONDS = 10, STEADY_AFTER.total_seconds()
MOST_CANDIDATES = 64  # who are woken where one of them is enough, if any


class EventHandlers:
    """Turns changes into keys of the work queue."""

    def __init__(
        self, queue: WorkQueue[QueueKey], manager: ManagerCache, fleet: Fleet, replan_check: ReplanCheck
    ) -> None:
        self._enqueue, self._manager, self._fleet = Enqueuer(queue, manager, fleet, replan_check), manager, fleet
        self._contact_limits: dict[str, TokenBucket] = {}  # by worker cluster
        self._writable_limits: dict[str, TokenBucket] = {}

    def register(self) -> None:
        """Hear of all that changes in the manager's stores from now on, and in worker clusters that are engaged from now on."""
        for store, handle in self.store_handlers():
            store.set_handler(functools.partial(_call_contained, handle))
        heard = (
            self.on_reservation,
            self.on_pod,
            self.on_capacity,
            self.on_head_mirror,
            self.on_contact,
            self.on_writable,
        )
        self._fleet.set_listeners(
            WorkerClusterListeners(*(functools.partial(_call_contained, handle) for handle in heard))
        )

    def store_handlers(self) -> list[tuple[Store, ChangeHandler]]:
        """Which change of the manager cluster is heard by whom."""
        manager = self._manager
        return [
            (manager.workloads, self._on_workload),
            (manager.placements, self._on_placement),
            (manager.pods, self._on_manager_pod),
            (manager.heads, self._on_head),
            (manager.ray_clusters, self._on_ray_cluster),
            (manager.ray_jobs, self._on_job),
            (manager.worker_clusters, self._on_worker_cluster),
            (manager.secrets, self._on_login),
            (manager.multikueue_clusters, self._on_login),
            (manager.multikueue_configs, self._on_multikueue_config),
            (manager.checks, self._on_check),
            (manager.policies, self._on_policy),
            (manager.gate_policies, self._on_gate),
            (manager.gate_bindings, self._on_gate),
            (manager.gate_webhooks, self._on_gate),
            (manager.cluster_queues, self._on_cluster_queue),
            (manager.local_queues, self._on_local_queue),
            (manager.flavors, self._on_layout),
            (manager.services, self._on_service),
            (manager.slices, self._on_slice),
        ]

    def on_reservation(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A share changed in a worker cluster."""
        raw = after or before or {}
        if not predicates.changed(before, after, lambda raw: predicates.share_for_gang(cluster, raw)):
            return  # so nor has what its pods look at, which is a part of that
        self._enqueue.gang_of_share(raw)
        if after is not None and (
            before is None or predicates.quota_reserved_since(before) != predicates.quota_reserved_since(after)
        ):
            self._on_quota_reserved(cluster, after)
        if predicates.changed(before, after, lambda raw: predicates.share_for_pods(cluster, raw)):
            shares = {
                (cluster, parse_number(annotation(one, names.ROUND_ANNOTATION))) for one in (before, after) if one
            }
            for place in self._manager.placements.by_index(
                f"{key_of(raw)[0]}/{annotation(raw, names.WORKLOAD_ANNOTATION)}"
            ):
                pods = self._manager.pods.by_index("/".join(key_of(place)))
                # An elastic job has a share for almost every worker: to wake all for each would be too much.
                self._enqueue.object_keys(POD, (pod for pod in pods if slot_share(pod) in shares))
        if after is None:  # its anchor went before it, unless somebody else deleted it
            namespace, name = key_of(raw)
            self._enqueue_anchor(namespace, cluster, name)
            self._enqueue.single_key(CLUSTER, "", cluster, CAPACITY_SECONDS)  # who was drained may be deleted then

    def _on_quota_reserved(self, cluster: str, share: Raw) -> None:
        """A share holds quota. Did its queue tell of that before? Whoever was planned between found it deducted twice, and no more
        news of the queue come. Mostly the queue's come a second later (docs/upstream.md, "A ClusterQueue's status lags")."""
        member = self._fleet.caches().get(cluster)
        found = member.read_reservation(share) if member else None
        if member and found and found.reserved_at and member.queue_version(found) > member.reserved_as_of(found):
            self._on_usage(member, found.cluster_queue)

    def after_actions(self, actions: Sequence[Action]) -> None:
        """All of these were tried. The anchor of a share that could not be made must not outlive the wish for it; and those behind a
        gang were planned as if its workers were everywhere what their template says, before a cluster was asked."""
        if any(isinstance(action, DryRunPod) for action in actions):
            self._enqueue.gangs_after_promise_change()
        for action in actions:
            if isinstance(action, Reserve):
                place, share = action.placement, action.share
                self._enqueue_anchor(place.namespace, share.cluster, place.name_of_share(share))

    def _enqueue_anchor(self, namespace: str, cluster: str, name: str) -> None:
        self._enqueue.single_key(ANCHOR, namespace, f"{cluster}/{name}", RECHECK_SECONDS)

    def on_pod(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A copy changed in a worker cluster."""
        if after is None:
            self._on_manager_pod(before, after)
        else:
            namespace, name = key_of(after)
            self._enqueue.single_key(POD, namespace, name, BURST_SECONDS)
        if before is not None and (after is None or (has_ended(after) and not has_ended(before))):
            self._on_quota_released(cluster, before)
        if predicates.changed(before, after, predicates.endpoint_state) and (
            pod := self._manager.pods.get(key_of(after or before or {}))
        ):
            self._enqueue.services_of_pod(pod)

    def _on_quota_released(self, cluster: str, remote_pod: Raw) -> None:
        """A copy holds no quota any more: was it the last one of a share that is to go, or that was evicted?"""
        member = self._fleet.caches().get(cluster)
        # Nobody waits for those before it, and of a large gang they come in a burst.
        last = member is None or not member.pods.value_counts(by_placement(remote_pod))
        after = 0.0 if last else BURST_SECONDS
        self._enqueue.gang_of_share(remote_pod, after)

    def on_capacity(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A queue, cohort, flavor, namespace or node of a worker cluster changed."""
        if predicates.changed(before, after, predicates.capacity_rules):
            self._enqueue.gangs_after_capacity_change()
        elif predicates.changed(before, after, predicates.quota_usage):
            member = self._fleet.caches().get(cluster)
            self._on_usage(member, key_of(after or {})[1]) if member else self._enqueue.gangs_after_capacity_change()
        if predicates.changed(before, after, lambda queue: queue.get("spec")):
            self._enqueue.aggregated_queues()

    def _on_usage(self, cache: WorkerClusterCache, queue: str) -> None:
        """More or less is in use of a ClusterQueue there."""
        tree = cohort_tree_of(cache, queue)
        self._enqueue.gangs_after_usage_change(tree) if tree else self._enqueue.gangs_after_capacity_change()

    def on_order_changed(self) -> None:
        """A gang that waits for a Secret or ConfigMap of its own takes no room from those behind it, or takes it again."""
        self._enqueue.gangs_after_promise_change()

    def on_head_mirror(self, before: Raw | None, after: Raw | None) -> None:
        """A Service or EndpointSlice that mirrors a head changed in a worker cluster: whoever made it that way, it must be right.

        Not at once: somebody over there who undoes what we write would else be answered as fast as both can.
        """
        raw = before or after or {}
        self._enqueue.workers_of_ray_cluster(
            f"{key_of(raw)[0]}/{label(raw, names.REMOTE_RAY_CLUSTER_LABEL)}", BURST_SECONDS
        )

    def on_unreachable_pod(self, pod: Raw) -> None:
        """Ray's head, or its own proxy, tells something new of a pod whose worker cluster cannot be seen."""
        self._enqueue.object_key(POD, pod)
        self._enqueue.services_of_pod(pod)

    def on_pod_refused(self, key: Key) -> None:
        """Something could not be done for a pod: its gang may have to go elsewhere."""
        pod = self._manager.pods.get(key) or {}
        place = self._manager.placements.get((key[0], label(pod, names.PLACEMENT_LABEL)))
        if place:
            self._enqueue.gang_of_placement(place, BURST_SECONDS)

    def on_contact(self, cluster: str) -> None:
        """A worker cluster came into sight or fell silent: all that touches it wants a look; not at once, where one does so all the
        time."""
        after = self._contact_limits.setdefault(cluster, TokenBucket(CONTACT_BURST, CONTACT_SECONDS)).take_or_delay(
            time.monotonic()
        )
        self._fleet.capacity_versions.mark_all_changed()
        self._enqueue.single_key(CLUSTER, "", cluster, after)
        self._enqueue.object_keys(GANG, self._manager.workloads, after)
        self._enqueue.object_keys(POD, self._pods_bound_to(cluster), after)
        self._enqueue.object_keys(SERVICE, self._manager.services, after)
        self._enqueue.objects_in_cluster(cluster, after)
        self._enqueue.aggregated_queues(after)

    def _pods_bound_to(self, cluster: str) -> Iterable[Raw]:
        """The manager's pods whose fate hangs on a worker cluster: those with a slot there, and those that may get one."""
        words = in_cluster(cluster), in_cluster(""), IN_DOUBT
        return (pod for word in words for pod in self._manager.pods.all_matches(word))

    def on_writable(self, cluster: str) -> None:
        """A worker cluster may be written to from now on: what was to be done there failed meanwhile. As seldom as it may come into
        sight, for it says itself whose it is."""
        after = self._writable_limits.setdefault(cluster, TokenBucket(CONTACT_BURST, CONTACT_SECONDS)).take_or_delay(
            time.monotonic()
        )
        self._enqueue.failed_keys(after)

    def resync_all(self, over: float = 0.0) -> None:
        """Every key there is, each at a time of its own within so many seconds."""
        for what, store in (
            (CLUSTER, self._manager.worker_clusters),
            (POLICY, self._manager.policies),
            (CHECK, self._manager.checks),
            (GANG, self._manager.workloads),
            (POD, sorted(self._manager.pods, key=lambda pod: bool(slot_of(pod)))),  # who waits comes first
            (SERVICE, self._manager.services),
        ):
            self._enqueue.spread_objects(what, store, over)
        self._enqueue.spread_services(self._manager.slices, over)
        for member in self._fleet.caches().values():
            # The others' keys are there already.
            alone = (copy for copy in member.pods if self._manager.pods.get(key_of(copy)) is None)
            self._enqueue.spread_objects(POD, alone, over)
            self._enqueue.spread_share_gangs(member.workloads, over)
        self._enqueue.aggregated_queues()

    def _on_workload(self, before: Raw | None, after: Raw | None) -> None:
        self._enqueue.object_key(GANG, after or before or {})
        if predicates.became_helpable(before, after):
            self._enqueue.waiting_gangs()
        if (
            before is None
            or not self._is_ours(before)
            or not predicates.changed(before, after, predicates.planning_position)
        ):
            return
        if after is not None and predicates.changed(before, after, predicates.workload_priority):
            self._enqueue.gangs_after_capacity_change()  # of itself, too, another plan may come: whom it preempts hangs on that
        else:
            self._enqueue.gangs_after_promise_change()  # those behind it were planned as if it took its share, or kept room free for it

    def _is_ours(self, workload: Raw) -> bool:
        return any(self._manager.check(entry.get("name") or "").is_ours for entry in _check_states(workload))

    def _on_placement(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        self._enqueue.gang_of_placement(raw)
        if predicates.changed(before, after, predicates.placement_quota):
            for cluster in {share.cluster for one in (before, after) if one for share in parse_placement(one).shares}:
                self._enqueue.single_key(CLUSTER, "", cluster, CAPACITY_SECONDS)
        if predicates.changed(before, after, lambda place: place.get("spec")):
            self._enqueue.object_keys(POD, self._manager.pods.by_index("/".join(key_of(raw))))
        if predicates.frees_capacity(before, after):  # what it was promised is free for others
            self._enqueue.gangs_after_promise_change()

    def _on_manager_pod(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        if not predicates.is_own_patch(before, after, self._manager.pending_status_patches.get(key_of(raw))):
            self._enqueue.object_key(POD, raw)
        if predicates.changed(before, after, predicates.backend_state):
            for known in (before, after):  # it may have another RayCluster's label now
                self._enqueue.services_of_pod(known or raw)
        place = self._manager.placements.get((key_of(raw)[0], label(raw, names.PLACEMENT_LABEL)))
        if place and predicates.changed(
            before, after, predicates.worker_pod_state
        ):  # a share may be lost with its last worker, or be left
            self._enqueue.gang_of_placement(place, BURST_SECONDS)
        slot = slot_of(before or {})
        if slot is None:
            if after is None:
                self._on_slotless_pod_deleted(by_placement(raw), raw)
        elif after is None or slot != slot_of(after):
            self._on_slot_freed(by_placement(raw), slot)

    def _on_slot_freed(self, placement_key: str, slot: Slot) -> None:
        """A slot may be free: those without one look for it, those who had the same one find that it is theirs, and so do those who came
        with one that is not their own, of whom nothing tells that until their copies are made."""
        for one in ("", str(slot), IN_DOUBT):
            self._enqueue.object_keys(POD, self._manager.pods.group_matches(placement_key, one))

    def _on_slotless_pod_deleted(self, placement_key: str, deleted_pod: Raw) -> None:
        """A pod is gone of which no slot is known: it held one at most, which was just being given to it, and any other of its group may
        take that."""
        pods, group = self._manager.pods, worker_group_of(deleted_pod)
        without = (*pods.group_matches(placement_key, ""), *pods.group_matches(placement_key, IN_DOUBT))
        fit = (
            pod for pod in without if worker_group_of(pod) == group and not (is_deleting(pod) or waits_for_quota(pod))
        )
        self._enqueue.object_keys(POD, itertools.islice(fit, MOST_CANDIDATES))

    def _on_head(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, predicates.head_address):
            self._enqueue.workers_of_ray_cluster(by_ray_cluster(after or before or {}))

    def _on_ray_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._on_job(before, after)
        if predicates.changed(before, after, uid_of):
            of = "/".join(key_of(after or before or {}))
            self._enqueue.workers_of_ray_cluster(of)
            self._enqueue.object_keys(SERVICE, self._manager.services.by_index(of), BURST_SECONDS)

    def _on_service(self, before: Raw | None, after: Raw | None) -> None:
        if before is None and after is None:  # they can be read from now on
            self._enqueue.object_keys(SERVICE, self._manager.services)
        else:  # one that goes, or is followed no more, shall lead nowhere
            self._enqueue.object_key(SERVICE, after or before or {}, BURST_SECONDS)
        if before is not None and predicates.changed(before, after, predicates.service_target):
            self._enqueue_newly_led(by_selected_ray_cluster(before))

    def _enqueue_newly_led(self, ray_cluster_key: str) -> None:
        """A Service does not lead to that RayCluster any more: one that was one too many may now."""
        namespace, _, name = ray_cluster_key.partition("/")
        if ray_cluster := self._manager.ray_clusters.get((namespace, name)):
            for key in service_endpoints.routed_services(self._manager.services.by_index(ray_cluster_key), ray_cluster):
                self._enqueue.single_key(SERVICE, *key, BURST_SECONDS)

    def _on_slice(self, before: Raw | None, after: Raw | None) -> None:
        """A slice of ours changed: whoever made it that way, it must be right. Not at once, as with the mirror of a head."""
        if before is None and after is None:
            self._on_service(None, None)
        for raw in (before, after):
            if raw is not None:
                self._enqueue.service_of_slice(raw, BURST_SECONDS)

    def _on_job(self, before: Raw | None, after: Raw | None) -> None:
        """A RayJob or RayCluster: it came, or goes, and its gang with it; or it is suspended, or let run."""
        if predicates.changed(before, after, predicates.job_state):
            gone = uid_of(before or {}), uid_of(after or {})
            self._enqueue.object_keys(GANG, (work for work in self._manager.workloads if controller_uid(work) in gone))
            if before is not None:
                # What it was promised is free for others, however long it takes to go; an elastic one that is let run asks for none.
                self._enqueue.gangs_after_promise_change()

    def _on_worker_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._enqueue.object_key(CLUSTER, after or before or {})
        if predicates.changed(before, after, lambda cluster: (cluster.get("status") or {}).get("lostSince")):
            # When their workers count as lost is reckoned from it.
            self._enqueue.object_keys(POD, self._pods_bound_to(key_of(after or before or {})[1]))
            self._enqueue.object_keys(GANG, self._manager.workloads)
        if predicates.changed(before, after, recorded_uid):
            self._enqueue.object_keys(
                CLUSTER, self._manager.worker_clusters
            )  # it may have stood in the way of another one
        if predicates.changed(before, after, unproven_reason):
            self._enqueue.gangs_after_capacity_change()  # policies may require that it was reached
        if predicates.changed(before, after, lambda cluster: cluster.get("spec")):
            self._enqueue.policies_and_dependents()  # a selector may choose it now, or not any more
            self._enqueue.object_keys(SERVICE, self._manager.services)  # its pods may have other addresses

    def _on_login(self, *_: Raw | None) -> None:
        """A kubeconfig, or a MultiKueueCluster that names one."""
        self._enqueue.object_keys(CLUSTER, self._manager.worker_clusters)

    def _on_policy(self, before: Raw | None, after: Raw | None) -> None:
        self._enqueue.object_key(POLICY, after or before or {})
        if predicates.changed(before, after, lambda policy: policy.get("spec")):
            self._enqueue.policies_and_dependents()  # its status, which is ours, says nothing new to anybody

    def _on_gate(self, *_: Raw | None) -> None:
        self._enqueue.checks_and_dependents(self._manager.checks)

    def _on_multikueue_config(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda config: config.get("spec")):
            self._enqueue.policies_and_dependents()

    def _on_check(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda check: check.get("spec")):
            self._enqueue.policies_and_dependents()  # it names another policy, or is a rival of another check
        self._enqueue.checks_and_dependents([after or before or {}])

    def _on_local_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._on_layout(before, after)
        self._enqueue.aggregated_queues()

    def _on_layout(self, before: Raw | None, after: Raw | None) -> None:
        """A queue or a flavor of the manager: its status moves all the time, its layout seldom."""
        if predicates.changed(before, after, lambda raw: (raw.get("spec"), meta(raw).get("labels"))):
            self._enqueue.policies_and_dependents()

    def _on_cluster_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._on_layout(before, after)
        if predicates.changed(before, after, predicates.pending_counts):
            self._enqueue.waiting_gangs()
        if predicates.changed(before, after, predicates.quota_settings):
            self._enqueue.aggregated_queues()


def _call_contained(handle: Callable[..., None], *change: object) -> None:
    """Hear of a change, whatever it holds: whom it concerns is looked at by the next resync all the same, and who told of it is a
    watch, which must not break for what somebody wrote elsewhere."""
    with contain_errors("hear", getattr(handle, "__name__", handle)):
        handle(*change)


def _check_states(workload: Raw) -> Iterable[Raw]:
    return (workload.get("status") or {}).get("admissionChecks") or ()
