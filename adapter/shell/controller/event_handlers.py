"""Which keys want a look when something changes: the only use we make of an event.

What a key's decision reads must wake it here; what is missed is caught by the resync. Nothing here reads a body for
more than finding those keys.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from adapter import names
from adapter.actions import Action, Reserve, TryCopy
from adapter.admission.cluster_identity import recorded
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.objects.placement import placement
from adapter.objects.unstructured import Key, Raw, annotation, controller_uid, key_of, label, meta, number, uid_of
from adapter.objects.worker_pod import Slot, group_of, has_ended, is_deleting, slot_of, slot_share, waits_for_quota
from adapter.preflight.reachability import unproven
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import IN_DOUBT, by_placement, by_ray_cluster, by_selected_ray_cluster, in_cluster
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Listeners, Member
from adapter.shell.controller import predicates
from adapter.shell.controller.enqueue import (
    ANCHOR,
    BURST_SECONDS,
    CHECK,
    CLUSTER,
    GANG,
    POD,
    POLICY,
    ROOM_SECONDS,
    SERVICE,
    Keys,
    QueueKey,
)
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.kube.store import Changed, Store
from adapter.shell.observe.replan import Seen, tree_of
from adapter.shell.rate_limit import Bucket
from adapter.shell.supervise import contained
from adapter.shell.write.anchors import BEREFT_SECONDS
from adapter.worker import service_endpoints

# How often a worker cluster may wake the whole fleet: five losses and returns in a row as they come, as of a link that flaps; then
# as often as it takes a cluster to count as steady. One whose watches are refused and allowed in turn would else do so twice a second.
CONTACTS, CONTACT_SECONDS = 10, STEADY_AFTER.total_seconds()
AT_MOST = 64  # who are woken where one of them is enough, if any


class Waker:
    """Turns changes into keys of the work queue."""

    def __init__(self, queue: WorkQueue[QueueKey], manager: Manager, fleet: Fleet, seen: Seen) -> None:
        self._keys, self._manager, self._fleet = Keys(queue, manager, fleet, seen), manager, fleet
        self._contacts: dict[str, Bucket] = {}  # by worker cluster
        self._openings: dict[str, Bucket] = {}

    def listen(self) -> None:
        """Hear of all that changes in the manager's stores from now on, and in worker clusters that are engaged from now on."""
        for store, handle in self.handlers():
            store.listen(functools.partial(_guarded, handle))
        heard = (self.reservation, self.remote_pod, self.room, self.head_mirror, self.contact, self.opened)
        self._fleet.listen(Listeners(*(functools.partial(_guarded, handle) for handle in heard)))

    def handlers(self) -> list[tuple[Store, Changed]]:
        """Which change of the manager cluster is heard by whom."""
        manager = self._manager
        return [
            (manager.workloads, self._workload),
            (manager.placements, self._placement),
            (manager.pods, self._pod),
            (manager.heads, self._head),
            (manager.ray_clusters, self._ray_cluster),
            (manager.ray_jobs, self._job),
            (manager.worker_clusters, self._worker_cluster),
            (manager.secrets, self._login),
            (manager.multikueue_clusters, self._login),
            (manager.multikueue_configs, self._config),
            (manager.checks, self._check),
            (manager.policies, self._policy),
            (manager.gate_policies, self._gate),
            (manager.gate_bindings, self._gate),
            (manager.gate_webhooks, self._gate),
            (manager.cluster_queues, self._cluster_queue),
            (manager.local_queues, self._local_queue),
            (manager.flavors, self._layout),
            (manager.services, self._service),
            (manager.slices, self._slice),
        ]

    def reservation(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A share changed in a worker cluster."""
        raw = after or before or {}
        if not predicates.changed(before, after, lambda raw: predicates.standing(cluster, raw)):
            return  # so nor has what its pods look at, which is a part of that
        self._keys.owner_of_share(raw)
        if after is not None and (before is None or predicates.reserved(before) != predicates.reserved(after)):
            self._counted(cluster, after)
        if predicates.changed(before, after, lambda raw: predicates.share(cluster, raw)):
            shares = {(cluster, number(annotation(one, names.ROUND_ANNOTATION))) for one in (before, after) if one}
            for place in self._manager.placements.group(
                f"{key_of(raw)[0]}/{annotation(raw, names.WORKLOAD_ANNOTATION)}"
            ):
                pods = self._manager.pods.group("/".join(key_of(place)))
                # An elastic job has a share for almost every worker: to wake all for each would be too much.
                self._keys.all(POD, (pod for pod in pods if slot_share(pod) in shares))
        if after is None:  # its anchor went before it, unless somebody else deleted it
            namespace, name = key_of(raw)
            self._anchor(namespace, cluster, name)
            self._keys.named(CLUSTER, "", cluster, ROOM_SECONDS)  # who was drained may be deleted then

    def _counted(self, cluster: str, share: Raw) -> None:
        """A share holds quota. Did its queue tell of that before? Whoever was planned between found it deducted twice, and no more
        news of the queue come. Mostly the queue's come a second later (docs/upstream.md, "A ClusterQueue's status lags")."""
        member = self._fleet.members().get(cluster)
        found = member.reservation(share) if member else None
        if member and found and found.reserved_at and member.queue_version(found) > member.reserved_as_of(found):
            self._used(member, found.cluster_queue)

    def tried(self, actions: Sequence[Action]) -> None:
        """All of these were tried. The anchor of a share that could not be made must not outlive the wish for it; and those behind a
        gang were planned as if its workers were everywhere what their template says, before a cluster was asked."""
        if any(isinstance(action, TryCopy) for action in actions):
            self._keys.promised()
        for action in actions:
            if isinstance(action, Reserve):
                place, share = action.placement, action.share
                self._anchor(place.namespace, share.cluster, place.name_of(share))

    def _anchor(self, namespace: str, cluster: str, name: str) -> None:
        self._keys.named(ANCHOR, namespace, f"{cluster}/{name}", BEREFT_SECONDS)

    def remote_pod(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A copy changed in a worker cluster."""
        if after is None:
            self._pod(before, after)
        else:
            namespace, name = key_of(after)
            self._keys.named(POD, namespace, name, BURST_SECONDS)
        if before is not None and (after is None or (has_ended(after) and not has_ended(before))):
            self._less(cluster, before)
        if predicates.changed(before, after, predicates.endpoint) and (
            pod := self._manager.pods.get(key_of(after or before or {}))
        ):
            self._keys.services_of(pod)

    def _less(self, cluster: str, copy: Raw) -> None:
        """A copy holds no quota any more: was it the last one of a share that is to go, or that was evicted?"""
        member = self._fleet.members().get(cluster)
        # Nobody waits for those before it, and of a large gang they come in a burst.
        last = member is None or not member.pods.count(by_placement(copy))
        after = 0.0 if last else BURST_SECONDS
        self._keys.owner_of_share(copy, after)

    def room(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A queue, cohort, flavor, namespace or node of a worker cluster changed."""
        if predicates.changed(before, after, predicates.rules):
            self._keys.room()
        elif predicates.changed(before, after, predicates.usage):
            member = self._fleet.members().get(cluster)
            self._used(member, key_of(after or {})[1]) if member else self._keys.room()
        if predicates.changed(before, after, lambda queue: queue.get("spec")):
            self._keys.quotas()

    def _used(self, member: Member, queue: str) -> None:
        """More or less is in use of a ClusterQueue there."""
        tree = tree_of(member, queue)
        self._keys.used(tree) if tree else self._keys.room()

    def turns(self) -> None:
        """A gang that waits for a Secret or ConfigMap of its own takes no room from those behind it, or takes it again."""
        self._keys.promised()

    def head_mirror(self, before: Raw | None, after: Raw | None) -> None:
        """A Service or EndpointSlice that mirrors a head changed in a worker cluster: whoever made it that way, it must be right.

        Not at once: somebody over there who undoes what we write would else be answered as fast as both can.
        """
        raw = before or after or {}
        self._keys.of_ray_cluster(f"{key_of(raw)[0]}/{label(raw, names.RAY_CLUSTER_LABEL)}", BURST_SECONDS)

    def unseen(self, pod: Raw) -> None:
        """Ray's head, or its own proxy, tells something new of a pod whose worker cluster cannot be seen."""
        self._keys.add(POD, pod)
        self._keys.services_of(pod)

    def refused(self, key: Key) -> None:
        """Something could not be done for a pod: its gang may have to go elsewhere."""
        pod = self._manager.pods.get(key) or {}
        place = self._manager.placements.get((key[0], label(pod, names.PLACEMENT_LABEL)))
        if place:
            self._keys.gang_of(place, BURST_SECONDS)

    def contact(self, cluster: str) -> None:
        """A worker cluster came into sight or fell silent: all that touches it wants a look; not at once, where one does so all the
        time."""
        after = self._contacts.setdefault(cluster, Bucket(CONTACTS, CONTACT_SECONDS)).delay(time.monotonic())
        self._fleet.room.changed()
        self._keys.named(CLUSTER, "", cluster, after)
        self._keys.all(GANG, self._manager.workloads, after)
        self._keys.all(POD, self._bound(cluster), after)
        self._keys.all(SERVICE, self._manager.services, after)
        self._keys.member(cluster, after)
        self._keys.quotas(after)

    def _bound(self, cluster: str) -> Iterable[Raw]:
        """The manager's pods whose fate hangs on a worker cluster: those with a slot there, and those that may get one."""
        words = in_cluster(cluster), in_cluster(""), IN_DOUBT
        return (pod for word in words for pod in self._manager.pods.found_by(word))

    def opened(self, cluster: str) -> None:
        """A worker cluster may be written to from now on: what was to be done there failed meanwhile. As seldom as it may come into
        sight, for it says itself whose it is."""
        after = self._openings.setdefault(cluster, Bucket(CONTACTS, CONTACT_SECONDS)).delay(time.monotonic())
        self._keys.failed(after)

    def everything(self, over: float = 0.0) -> None:
        """Every key there is, each at a time of its own within so many seconds."""
        for what, store in (
            (CLUSTER, self._manager.worker_clusters),
            (POLICY, self._manager.policies),
            (CHECK, self._manager.checks),
            (GANG, self._manager.workloads),
            (POD, sorted(self._manager.pods, key=lambda pod: bool(slot_of(pod)))),  # who waits comes first
            (SERVICE, self._manager.services),
        ):
            self._keys.spread(what, store, over)
        self._keys.spread_services(self._manager.slices, over)
        for member in self._fleet.members().values():
            # The others' keys are there already.
            alone = (copy for copy in member.pods if self._manager.pods.get(key_of(copy)) is None)
            self._keys.spread(POD, alone, over)
            self._keys.spread_owners(member.workloads, over)
        self._keys.quotas()

    def _workload(self, before: Raw | None, after: Raw | None) -> None:
        self._keys.add(GANG, after or before or {})
        if predicates.helped(before, after):
            self._keys.waiting()
        if before is None or not self._is_ours(before) or not predicates.changed(before, after, predicates.turn):
            return
        if after is not None and predicates.changed(before, after, predicates.priority):
            self._keys.room()  # of itself, too, another plan may come: whom it preempts hangs on that
        else:
            self._keys.promised()  # those behind it were planned as if it took its share, or kept room free for it

    def _is_ours(self, work: Raw) -> bool:
        return any(self._manager.check(entry.get("name") or "").is_ours for entry in _checks_on(work))

    def _placement(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        self._keys.gang_of(raw)
        if predicates.changed(before, after, predicates.held):
            for cluster in {share.cluster for one in (before, after) if one for share in placement(one).shares}:
                self._keys.named(CLUSTER, "", cluster, ROOM_SECONDS)
        if predicates.changed(before, after, lambda place: place.get("spec")):
            self._keys.all(POD, self._manager.pods.group("/".join(key_of(raw))))
        if predicates.frees(before, after):  # what it was promised is free for others
            self._keys.promised()

    def _pod(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        if not predicates.as_told(before, after, self._manager.telling.get(key_of(raw))):
            self._keys.add(POD, raw)
        if predicates.changed(before, after, predicates.backend):
            for known in (before, after):  # it may have another RayCluster's label now
                self._keys.services_of(known or raw)
        place = self._manager.placements.get((key_of(raw)[0], label(raw, names.PLACEMENT_LABEL)))
        if place and predicates.changed(
            before, after, predicates.stand
        ):  # a share may be lost with its last worker, or be left
            self._keys.gang_of(place, BURST_SECONDS)
        slot = slot_of(before or {})
        if slot is None:
            if after is None:
                self._undone(by_placement(raw), raw)
        elif after is None or slot != slot_of(after):
            self._free(by_placement(raw), slot)

    def _free(self, place: str, slot: Slot) -> None:
        """A slot may be free: those without one look for it, those who had the same one find that it is theirs, and so do those who came
        with one that is not their own, of whom nothing tells that until their copies are made."""
        for one in ("", str(slot), IN_DOUBT):
            self._keys.all(POD, self._manager.pods.having(place, one))

    def _undone(self, place: str, gone: Raw) -> None:
        """A pod is gone of which no slot is known: it held one at most, which was just being given to it, and any other of its group may
        take that."""
        pods, group = self._manager.pods, group_of(gone)
        without = (*pods.having(place, ""), *pods.having(place, IN_DOUBT))
        fit = (pod for pod in without if group_of(pod) == group and not (is_deleting(pod) or waits_for_quota(pod)))
        self._keys.all(POD, itertools.islice(fit, AT_MOST))

    def _head(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, predicates.head):
            self._keys.of_ray_cluster(by_ray_cluster(after or before or {}))

    def _ray_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._job(before, after)
        if predicates.changed(before, after, uid_of):
            of = "/".join(key_of(after or before or {}))
            self._keys.of_ray_cluster(of)
            self._keys.all(SERVICE, self._manager.services.group(of), BURST_SECONDS)

    def _service(self, before: Raw | None, after: Raw | None) -> None:
        if before is None and after is None:  # they can be read from now on
            self._keys.all(SERVICE, self._manager.services)
        else:  # one that goes, or is followed no more, shall lead nowhere
            self._keys.add(SERVICE, after or before or {}, BURST_SECONDS)
        if before is not None and predicates.changed(before, after, predicates.leads):
            self._next_led(by_selected_ray_cluster(before))

    def _next_led(self, of: str) -> None:
        """A Service does not lead to that RayCluster any more: one that was one too many may now."""
        namespace, _, name = of.partition("/")
        if ray_cluster := self._manager.ray_clusters.get((namespace, name)):
            for key in service_endpoints.led(self._manager.services.group(of), ray_cluster):
                self._keys.named(SERVICE, *key, BURST_SECONDS)

    def _slice(self, before: Raw | None, after: Raw | None) -> None:
        """A slice of ours changed: whoever made it that way, it must be right. Not at once, as with the mirror of a head."""
        if before is None and after is None:
            self._service(None, None)
        for raw in (before, after):
            if raw is not None:
                self._keys.service_of(raw, BURST_SECONDS)

    def _job(self, before: Raw | None, after: Raw | None) -> None:
        """A RayJob or RayCluster: it came, or goes, and its gang with it; or it is suspended, or let run."""
        if predicates.changed(before, after, predicates.job):
            gone = uid_of(before or {}), uid_of(after or {})
            self._keys.all(GANG, (work for work in self._manager.workloads if controller_uid(work) in gone))
            if before is not None:
                # What it was promised is free for others, however long it takes to go; an elastic one that is let run asks for none.
                self._keys.promised()

    def _worker_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._keys.add(CLUSTER, after or before or {})
        if predicates.changed(before, after, lambda cluster: (cluster.get("status") or {}).get("lostSince")):
            # When their workers count as lost is reckoned from it.
            self._keys.all(POD, self._bound(key_of(after or before or {})[1]))
            self._keys.all(GANG, self._manager.workloads)
        if predicates.changed(before, after, recorded):
            self._keys.all(CLUSTER, self._manager.worker_clusters)  # it may have stood in the way of another one
        if predicates.changed(before, after, unproven):
            self._keys.room()  # policies may require that it was reached
        if predicates.changed(before, after, lambda cluster: cluster.get("spec")):
            self._keys.policies()  # a selector may choose it now, or not any more
            self._keys.all(SERVICE, self._manager.services)  # its pods may have other addresses

    def _login(self, *_: Raw | None) -> None:
        """A kubeconfig, or a MultiKueueCluster that names one."""
        self._keys.all(CLUSTER, self._manager.worker_clusters)

    def _policy(self, before: Raw | None, after: Raw | None) -> None:
        self._keys.add(POLICY, after or before or {})
        if predicates.changed(before, after, lambda policy: policy.get("spec")):
            self._keys.policies()  # its status, which is ours, says nothing new to anybody

    def _gate(self, *_: Raw | None) -> None:
        self._keys.checks(self._manager.checks)

    def _config(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda config: config.get("spec")):
            self._keys.policies()

    def _check(self, before: Raw | None, after: Raw | None) -> None:
        if predicates.changed(before, after, lambda check: check.get("spec")):
            self._keys.policies()  # it names another policy, or is a rival of another check
        self._keys.checks([after or before or {}])

    def _local_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._layout(before, after)
        self._keys.quotas()

    def _layout(self, before: Raw | None, after: Raw | None) -> None:
        """A queue or a flavor of the manager: its status moves all the time, its layout seldom."""
        if predicates.changed(before, after, lambda raw: (raw.get("spec"), meta(raw).get("labels"))):
            self._keys.policies()

    def _cluster_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._layout(before, after)
        if predicates.changed(before, after, predicates.pending):
            self._keys.waiting()
        if predicates.changed(before, after, predicates.quota):
            self._keys.quotas()


def _guarded(handle: Callable[..., None], *change: object) -> None:
    """Hear of a change, whatever it holds: whom it concerns is looked at by the next resync all the same, and who told of it is a
    watch, which must not break for what somebody wrote elsewhere."""
    with contained("hear", getattr(handle, "__name__", handle)):
        handle(*change)


def _checks_on(work: Raw) -> Iterable[Raw]:
    return (work.get("status") or {}).get("admissionChecks") or ()
