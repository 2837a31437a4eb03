"""Event handlers: which keys a change enqueues. Changes serve no other purpose.

A change of anything that the decision on a key reads must enqueue that key; the resync catches what was missed.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from adapter import names
from adapter.actions import Action, DryRunPod, Reserve
from adapter.admission.cluster_identity import recorded_uid
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.gang.unstartable_pods import start_obstacle
from adapter.objects import kuberay_events
from adapter.objects.placement import parse_placement
from adapter.objects.queues import quota_source
from adapter.objects.unstructured import (
    Key,
    Raw,
    annotation,
    controller_uid,
    key_of,
    label,
    mapping_field,
    meta,
    parse_number,
    text_field,
    uid_of,
)
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    is_deleting,
    is_dispatched,
    slot_of,
    slot_share,
    waits_for_quota,
    worker_group_of,
)
from adapter.objects.workload import gang_key
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
    WokenGangs,
)
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.kube.store import ChangeHandler, Store
from adapter.shell.observe.replan import ReplanCheck, cohort_tree_of
from adapter.shell.rate_limit import TokenBucket
from adapter.shell.supervise import contain_errors
from adapter.shell.write.anchors import RECHECK_SECONDS
from adapter.worker import service_endpoints

# How often a worker cluster may enqueue the whole fleet: for five losses and returns in a row, as of a flapping link.
# After these, once in the time that a cluster takes to count as steady. Without a limit, watches forbidden and allowed
# in turn would enqueue the fleet twice a second.
CONTACT_BURST, CONTACT_SECONDS = 10, STEADY_AFTER.total_seconds()
MOST_CANDIDATES = 64  # the most pods that are enqueued where one of them is enough


class EventHandlers:
    def __init__(
        self, queue: WorkQueue[QueueKey], manager: ManagerCache, fleet: Fleet, replan_check: ReplanCheck
    ) -> None:
        self._enqueue, self._manager, self._fleet = Enqueuer(queue, manager, fleet, replan_check), manager, fleet
        self._replan_check = replan_check
        self._contact_limits: dict[str, TokenBucket] = {}  # by worker cluster
        self._writable_limits: dict[str, TokenBucket] = {}

    def register(self) -> None:
        """Handle changes in the manager's stores, and in worker clusters engaged from now on."""
        for store, handle in self.store_handlers():
            store.set_handler(functools.partial(_call_contained, handle))
        handlers = (
            self.on_reservation,
            self.on_pod,
            self.on_capacity,
            self.on_head_mirror,
            self.on_contact,
            self.on_writable,
            self.on_kueue_answer,
            self.on_worker_namespace,
        )
        self._manager.on_namespace = functools.partial(_call_contained, self.on_namespace)
        self._fleet.set_listeners(
            WorkerClusterListeners(*(functools.partial(_call_contained, handle) for handle in handlers))
        )

    def store_handlers(self) -> list[tuple[Store, ChangeHandler]]:
        manager = self._manager
        return [
            (manager.workloads, self._on_workload),
            (manager.placements, self._on_placement),
            (manager.pods, self._on_manager_pod),
            (manager.heads, self._on_head),
            (manager.ray_clusters, self._on_ray_cluster),
            (manager.ray_jobs, self._on_job),
            (manager.worker_clusters, self._on_worker_cluster),
            (manager.secrets, self._on_secret),
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
            (manager.kuberay_events, self._on_kuberay_event),
        ]

    def on_reservation(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        if not predicates.changed(before, after, lambda raw: predicates.share_for_gang(cluster, raw)):
            return  # its pods depend on fewer facts than its gang
        self._enqueue.gang_of_share(raw)
        if after is not None and (
            before is None or predicates.quota_reserved_since(before) != predicates.quota_reserved_since(after)
        ):
            self._on_quota_reserved(cluster, after)
        if predicates.changed(before, after, lambda raw: predicates.share_for_pods(cluster, raw)):
            shares = {
                (cluster, parse_number(annotation(version, names.ROUND_ANNOTATION)))
                for version in (before, after)
                if version
            }
            for placement in self._manager.placements.by_index(
                f"{key_of(raw)[0]}/{annotation(raw, names.WORKLOAD_ANNOTATION)}"
            ):
                pods = self._manager.pods.by_index("/".join(key_of(placement)))
                # An elastic job has a share for almost every worker.
                self._enqueue.object_keys(POD, (pod for pod in pods if slot_share(pod) in shares))
        if after is None:
            # The share's anchor still exists if another client deleted the share.
            namespace, name = key_of(raw)
            self._enqueue_anchor(namespace, cluster, name)
            # A drained WorkerCluster may be deletable now.
            self._enqueue.single_key(CLUSTER, "", cluster, CAPACITY_SECONDS)

    def _on_quota_reserved(self, cluster: str, share: Raw) -> None:
        """Enqueue gangs if the ClusterQueue counted a share before the share itself showed its quota.

        A gang planned in between deducted the share twice, and the queue will not change again. Mostly the queue's
        status comes a second later (docs/upstream.md, "A ClusterQueue's status lags").
        """
        member = self._fleet.caches().get(cluster)
        reservation = member.read_reservation(share) if member else None
        if (
            member
            and reservation
            and reservation.reserved_at
            and member.queue_version(reservation) > member.reserved_as_of(reservation)
        ):
            self._on_usage(member, reservation.cluster_queue)

    def after_actions(self, actions: Sequence[Action]) -> None:
        """Enqueue what the attempted actions affect.

        The anchor of a share that could not be created must not outlive its need. Gangs behind one with dry runs were
        planned as if its pods were those of its templates.
        """
        if any(isinstance(action, DryRunPod) for action in actions):
            self._enqueue.gangs_after_promise_change()
        for action in actions:
            if isinstance(action, Reserve):
                placement, share = action.placement, action.share
                self._enqueue_anchor(placement.namespace, share.cluster, placement.name_of_share(share))

    def _enqueue_anchor(self, namespace: str, cluster: str, name: str) -> None:
        self._enqueue.single_key(ANCHOR, namespace, f"{cluster}/{name}", RECHECK_SECONDS)

    def on_pod(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            self._on_manager_pod(before, after)
        else:
            namespace, name = key_of(after)
            self._enqueue.single_key(POD, namespace, name, BURST_SECONDS)
        if before is not None and (after is None or (has_ended(after) and not has_ended(before))):
            self._on_quota_released(cluster, before)
        if start_obstacle(before or {}) != start_obstacle(after or {}):
            self._enqueue.gang_of_share(after or before or {}, BURST_SECONDS)
        if predicates.changed(before, after, predicates.endpoint_state) and (
            pod := self._manager.pods.get(key_of(after or before or {}))
        ):
            self._enqueue.services_of_pod(pod)

    def _on_quota_released(self, cluster: str, remote_pod: Raw) -> None:
        """Enqueue the pod's gang: the pod may have been the last one of an evicted share, or of one to be deleted."""
        member = self._fleet.caches().get(cluster)
        # Only the last pod is waited for, and those of a large gang end in a burst.
        is_last = member is None or not member.pods.value_counts(by_placement(remote_pod))
        delay = 0.0 if is_last else BURST_SECONDS
        self._enqueue.gang_of_share(remote_pod, delay)

    def on_capacity(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """Enqueue what a change of a queue, cohort, flavor, namespace or node affects."""
        if predicates.changed(before, after, predicates.capacity_rules):
            self._enqueue.gangs_after_capacity_change()
        elif predicates.changed(before, after, predicates.quota_usage):
            member = self._fleet.caches().get(cluster)
            self._on_usage(member, key_of(after or {})[1]) if member else self._enqueue.gangs_after_capacity_change()
        if predicates.changed(before, after, lambda queue: (queue.get("spec"), quota_source(queue))):
            self._enqueue.aggregated_queues()

    def _on_usage(self, cache: WorkerClusterCache, queue: str) -> None:
        tree = cohort_tree_of(cache, queue)
        self._enqueue.gangs_after_usage_change(tree) if tree else self._enqueue.gangs_after_capacity_change()

    def on_order_changed(self) -> None:
        """Enqueue gangs behind one that began or ceased to wait for its Secret or ConfigMap.

        While it waits for that, it takes no capacity. Nor does a gang whose job KubeRay rejects.
        """
        self._enqueue.gangs_after_promise_change()

    def wake_gangs(self, which: WokenGangs) -> float | None:
        """Enqueue the gangs that changes of capacity concern; returns the delay of a requeue if it is too early."""
        return self._enqueue.wake_gangs(which)

    def on_kueue_answer(self, cluster: str, queue: str) -> None:
        """Enqueue the gangs of a cohort tree after Kueue has shown what it counts of a pod's requests."""
        member = self._fleet.caches().get(cluster)
        self._on_usage(member, queue) if member else self._enqueue.gangs_after_capacity_change()

    def on_namespace(self, namespace: str) -> None:
        """Enqueue a namespace that became incomplete in the manager cluster, or complete."""
        shares = (raw for member in self._fleet.caches().values() for raw in member.workloads)
        self._enqueue.namespace(namespace)
        self._enqueue.share_gangs((raw for raw in shares if key_of(raw)[0] == namespace), BURST_SECONDS)

    def on_worker_namespace(self, _: str, namespace: str) -> None:
        """Enqueue a namespace that became incomplete in a worker cluster, or complete."""
        self.on_namespace(namespace)

    def on_head_mirror(self, before: Raw | None, after: Raw | None) -> None:
        """Enqueue the workers whose head mirror changed; the mirror must be right, whatever changed it.

        Without the delay, another writer that undoes our writes would be answered as fast as both writers can write.
        """
        raw = before or after or {}
        self._enqueue.workers_of_ray_cluster(
            f"{key_of(raw)[0]}/{label(raw, names.REMOTE_RAY_CLUSTER_LABEL)}", BURST_SECONDS
        )

    def on_unreachable_pod(self, pod: Raw) -> None:
        """Enqueue a pod after Ray's head, or the pod's proxy, showed a change."""
        self._enqueue.object_key(POD, pod)
        self._enqueue.services_of_pod(pod)

    def on_pod_refused(self, key: Key) -> None:
        """Enqueue the gang of a pod that could not be reconciled: its worker may have to go elsewhere."""
        pod = self._manager.pods.get(key) or {}
        placement = self._manager.placements.get((key[0], label(pod, names.PLACEMENT_LABEL)))
        if placement:
            self._enqueue.gang_of_placement(placement, BURST_SECONDS)

    def on_contact(self, cluster: str) -> None:
        """Enqueue all that touches a cluster that became reachable or unreachable; delayed if the cluster flaps."""
        delay = self._contact_limits.setdefault(cluster, TokenBucket(CONTACT_BURST, CONTACT_SECONDS)).take_or_delay(
            time.monotonic()
        )
        self._fleet.capacity_versions.mark_all_changed()
        self._enqueue.single_key(CLUSTER, "", cluster, delay)
        self._enqueue.object_keys(GANG, self._manager.workloads, delay)
        self._enqueue.object_keys(POD, self._pods_bound_to(cluster), delay)
        self._enqueue.object_keys(SERVICE, self._manager.services, delay)
        self._enqueue.objects_in_cluster(cluster, delay)
        self._enqueue.aggregated_queues(delay)

    def _pods_bound_to(self, cluster: str) -> Iterable[Raw]:
        words = in_cluster(cluster), in_cluster(""), IN_DOUBT
        return (pod for word in words for pod in self._manager.pods.all_matches(word))

    def on_writable(self, cluster: str) -> None:
        """Enqueue the failed keys, because writes to a cluster fail until it becomes writable.

        The rate is limited as in `on_contact`, since the cluster itself reports its claim's holder.
        """
        delay = self._writable_limits.setdefault(cluster, TokenBucket(CONTACT_BURST, CONTACT_SECONDS)).take_or_delay(
            time.monotonic()
        )
        self._enqueue.failed_keys(delay)

    def resync_all(self, over: float = 0.0) -> None:
        """Enqueue each key at its own time within `over` seconds."""
        for kind, store in (
            (CLUSTER, self._manager.worker_clusters),
            (POLICY, self._manager.policies),
            (CHECK, self._manager.checks),
            (GANG, self._manager.workloads),
            # Pods without a slot come first.
            (POD, sorted(self._manager.pods, key=lambda pod: bool(slot_of(pod)))),
            (SERVICE, self._manager.services),
        ):
            self._enqueue.spread_objects(kind, store, over)
        self._enqueue.incomplete_namespaces()
        self._enqueue.spread_services(self._manager.slices, over)
        for member in self._fleet.caches().values():
            # Other remote pods share their manager pods' keys.
            orphans = (remote_pod for remote_pod in member.pods if self._manager.pods.get(key_of(remote_pod)) is None)
            self._enqueue.spread_objects(POD, orphans, over)
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
            # Its priority decides which Workloads its own plan preempts.
            self._enqueue.gangs_after_capacity_change()
        else:
            # Gangs behind this one were planned as if it took its share, or as if it took none.
            self._enqueue.gangs_after_promise_change()

    def _is_ours(self, workload: Raw) -> bool:
        return any(self._manager.check(entry.get("name") or "").is_ours for entry in _check_states(workload))

    def _on_placement(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        self._enqueue.gang_of_placement(raw)
        if predicates.changed(before, after, predicates.placement_quota):
            for cluster in {
                share.cluster for version in (before, after) if version for share in parse_placement(version).shares
            }:
                self._enqueue.single_key(CLUSTER, "", cluster, CAPACITY_SECONDS)
        if predicates.changed(before, after, lambda placement: placement.get("spec")):
            self._enqueue.object_keys(POD, self._manager.pods.by_index("/".join(key_of(raw))))
        elif predicates.changed(before, after, predicates.placed_round):
            waiting = (pod for pod in self._manager.pods.by_index("/".join(key_of(raw))) if not is_dispatched(pod))
            self._enqueue.object_keys(POD, waiting)
        # The capacity that was promised to this gang is free for others.
        if predicates.frees_capacity(before, after):
            self._enqueue.gangs_after_promise_change()

    def _on_manager_pod(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        if not predicates.is_own_patch(before, after, self._manager.pending_status_patches.get(key_of(raw))):
            self._enqueue.object_key(POD, raw)
        if predicates.changed(before, after, predicates.backend_state):
            # The pod may have another RayCluster's label now.
            for version in (before, after):
                self._enqueue.services_of_pod(version or raw)
        placement = self._manager.placements.get((key_of(raw)[0], label(raw, names.PLACEMENT_LABEL)))
        # A share may be lost or spare without its last worker.
        if placement and predicates.changed(before, after, predicates.worker_pod_state):
            self._enqueue.gang_of_placement(placement, BURST_SECONDS)
        slot = slot_of(before or {})
        if slot is None:
            if after is None:
                self._on_slotless_pod_deleted(by_placement(raw), raw)
        elif after is None or slot != slot_of(after):
            self._on_slot_freed(by_placement(raw), slot)

    def _on_slot_freed(self, placement_key: str, slot: Slot) -> None:
        """Enqueue pods that a free slot may concern.

        Until their remote pods are created, no other change enqueues pods whose template slot may not be their own.
        """
        for word in ("", str(slot), IN_DOUBT):
            self._enqueue.object_keys(POD, self._manager.pods.group_matches(placement_key, word))

    def _on_slotless_pod_deleted(self, placement_key: str, deleted_pod: Raw) -> None:
        """Enqueue pods without a slot: any of the same group may take one that the deleted pod was to get."""
        pods, group = self._manager.pods, worker_group_of(deleted_pod)
        slotless = (*pods.group_matches(placement_key, ""), *pods.group_matches(placement_key, IN_DOUBT))
        candidates = (
            pod for pod in slotless if worker_group_of(pod) == group and not (is_deleting(pod) or waits_for_quota(pod))
        )
        self._enqueue.object_keys(POD, itertools.islice(candidates, MOST_CANDIDATES))

    def _on_head(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, predicates.head_address):
            self._enqueue.workers_of_ray_cluster(by_ray_cluster(after or before or {}))

    def _on_ray_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._on_job(before, after)
        if (
            after
            and predicates.changed(before, after, predicates.kuberay_validation)
            and self._manager.kuberay_events_of(after)
        ):
            self._enqueue_gangs_of((uid_of(after), controller_uid(after)))
        if predicates.changed(before, after, uid_of):
            ray_cluster_key = "/".join(key_of(after or before or {}))
            self._enqueue.workers_of_ray_cluster(ray_cluster_key)
            self._enqueue.object_keys(SERVICE, self._manager.services.by_index(ray_cluster_key), BURST_SECONDS)

    def _on_service(self, before: Raw | None, after: Raw | None) -> None:
        if before is None and after is None:
            # Services can be read from now on.
            self._enqueue.object_keys(SERVICE, self._manager.services)
        else:
            # A deleted or unlabelled Service must route to nothing.
            self._enqueue.object_key(SERVICE, after or before or {}, BURST_SECONDS)
        if before is not None and predicates.changed(before, after, predicates.service_target):
            self._enqueue_newly_led(by_selected_ray_cluster(before))

    def _enqueue_newly_led(self, ray_cluster_key: str) -> None:
        """Enqueue the Services that are routed once another one no longer selects that RayCluster: there is a limit."""
        namespace, _, name = ray_cluster_key.partition("/")
        if ray_cluster := self._manager.ray_clusters.get((namespace, name)):
            for key in service_endpoints.routed_services(self._manager.services.by_index(ray_cluster_key), ray_cluster):
                self._enqueue.single_key(SERVICE, *key, BURST_SECONDS)

    def _on_slice(self, before: Raw | None, after: Raw | None) -> None:
        """Enqueue the Service of a changed slice of ours, which must be right, whatever changed it."""
        if before is None and after is None:
            self._on_service(None, None)
        for raw in (before, after):
            if raw is not None:
                self._enqueue.service_of_slice(raw, BURST_SECONDS)

    def _on_kuberay_event(self, before: Raw | None, after: Raw | None) -> None:
        """Enqueue the gang of a RayCluster that KubeRay rejects, or whose event has expired."""
        if before is None and after is None:
            self._enqueue.object_keys(GANG, self._manager.workloads)  # the events can be read from now on, or no more
        if not predicates.changed(before, after, predicates.kuberay_rejection):
            return
        for event in (before, after):
            if event is not None and kuberay_events.is_rejection(event):
                involved = mapping_field(event, "involvedObject")
                raw = self._manager.ray_clusters.get((key_of(event)[0], text_field(involved, "name")))
                self._enqueue_gangs_of((text_field(involved, "uid"), controller_uid(raw or {})), BURST_SECONDS)

    def _enqueue_gangs_of(self, job_uids: Iterable[str], delay: float = 0.0) -> None:
        for uid in job_uids:
            self._enqueue.object_keys(GANG, self._manager.workloads.owned_by(uid), delay)

    def _on_job(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, predicates.job_state):
            self._enqueue_gangs_of({uid_of(before or {}), uid_of(after or {})})
            if before is not None:
                # A job's capacity is free at once, even while the job is being deleted. A resumed elastic job requests
                # none.
                self._enqueue.gangs_after_promise_change()
        if before and after and predicates.changed(before, after, predicates.move_from):
            self._on_move(after)

    def _on_move(self, job: Raw) -> None:
        """Enqueue the gang and the workers of a job that names other clusters to leave: other slots are open to them.

        Gangs behind it were planned as if it might use the clusters that it named before.
        """
        owned = self._manager.workloads.owned_by(uid_of(job))
        placed = (raw for raw in owned if self._is_ours(raw) and not self._manager.read_workload(raw).finished)
        gangs = set(map(gang_key, placed))
        for key in gangs:
            self._enqueue.single_key(GANG, *key)
            for placement in self._manager.placements.by_index("/".join(key)):
                self._replan_check.forget_plan(placement)
                self._enqueue.object_keys(POD, self._manager.pods.by_index("/".join(key_of(placement))), BURST_SECONDS)
        if gangs:
            self._enqueue.gangs_after_promise_change()

    def _on_worker_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._enqueue.object_key(CLUSTER, after or before or {})
        if predicates.changed(before, after, lambda cluster: (cluster.get("status") or {}).get("lostSince")):
            # lostSince determines when its workers count as lost.
            self._enqueue.object_keys(POD, self._pods_bound_to(key_of(after or before or {})[1]))
            self._enqueue.object_keys(GANG, self._manager.workloads)
        if predicates.changed(before, after, recorded_uid):
            # This WorkerCluster may have been in conflict with another one.
            self._enqueue.object_keys(CLUSTER, self._manager.worker_clusters)
        if predicates.changed(before, after, unproven_reason):
            # Policies may require that the cluster is proven reachable.
            self._enqueue.gangs_after_capacity_change()
        if predicates.changed(before, after, lambda cluster: cluster.get("spec")):
            # A selector may choose it now, or not any more.
            self._enqueue.policies_and_dependents()
            # Its pods may have other addresses.
            self._enqueue.object_keys(SERVICE, self._manager.services)

    def _on_login(self, *_: Raw | None) -> None:
        """Enqueue all clusters after a kubeconfig, or a MultiKueueCluster that names one, changed."""
        self._enqueue.object_keys(CLUSTER, self._manager.worker_clusters)

    def _on_secret(self, before: Raw | None, after: Raw | None) -> None:
        """Enqueue all clusters, and what waits for the relay's key after a change of it."""
        self._on_login()
        if key_of(after or before or {}) == (names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET):
            self._enqueue.object_keys(POD, (pod for pod in self._manager.pods if not is_dispatched(pod)))
            self._enqueue.gangs_after_capacity_change()

    def _on_policy(self, before: Raw | None, after: Raw | None) -> None:
        self._enqueue.object_key(POLICY, after or before or {})
        if predicates.changed(before, after, lambda policy: policy.get("spec")):
            self._enqueue.policies_and_dependents()  # its status is ours and affects nothing else

    def _on_gate(self, *_: Raw | None) -> None:
        self._enqueue.checks_and_dependents(self._manager.checks)

    def _on_multikueue_config(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda config: config.get("spec")):
            self._enqueue.policies_and_dependents()

    def _on_check(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda check: check.get("spec")):
            # The check may name another policy, or conflict with another check.
            self._enqueue.policies_and_dependents()
        self._enqueue.checks_and_dependents([after or before or {}])

    def _on_local_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._on_layout(before, after)
        self._enqueue.aggregated_queues()

    def _on_layout(self, before: Raw | None, after: Raw | None) -> None:
        """Enqueue after changes of spec or labels; the status changes all the time."""
        if predicates.changed(before, after, lambda raw: (raw.get("spec"), meta(raw).get("labels"))):
            self._enqueue.policies_and_dependents()

    def _on_cluster_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._on_layout(before, after)
        if predicates.changed(before, after, predicates.pending_counts):
            self._enqueue.waiting_gangs()
        if predicates.changed(before, after, predicates.quota_settings):
            self._enqueue.aggregated_queues()


def _call_contained(handle: Callable[..., None], *change: object) -> None:
    """Contain a handler's errors: no object may break the watch. The next resync enqueues its keys."""
    with contain_errors("hear", getattr(handle, "__name__", handle)):
        handle(*change)


def _check_states(workload: Raw) -> Iterable[Raw]:
    return (workload.get("status") or {}).get("admissionChecks") or ()
