"""The invariants about what the manager's records say: slots, shares, the check, and who may write at all."""

from collections.abc import Callable, Iterator
from functools import partial

from adapter import names
from adapter.objects.placement import Placement, Share, parse_placement
from adapter.objects.unstructured import Raw, annotation, is_condition_true, key_of, label, meta
from adapter.objects.worker_pod import has_ended, slot_of
from adapter.shell.kube import resources
from hack.simulation import restore
from hack.simulation.faults import Faults
from hack.simulation.kubelet import is_alive
from hack.simulation.kuberay import CHECK
from hack.simulation.kueue import cpus_of
from hack.simulation.link import Process, Request
from hack.simulation.replica import MANAGER
from hack.simulation.world import World

_CALM = 30.0  # seconds without a fault after which plans are made on what is there
_DIFFERS_WITHIN = 60.0
_LOST_AFTER = 240.0  # seconds; the default of a policy is five minutes
_READ_WITHIN = 0.5  # seconds between the last read of a share and the check that depends on it, without slow links


class Records:
    """Watches what replicas write, and what it says."""

    def __init__(self, world: World, faults: Faults, violate: Callable[[str, str, str], None]) -> None:
        self._world, self._faults, self._violate = world, faults, violate
        self._lost_at: dict[tuple[str, str], float] = {}  # when a share lost its quota, by cluster and name
        self._gone: dict[
            str, tuple[str, float, float]
        ] = {}  # cluster -> its lostSince, when it came, and the clock's error
        self._first: dict[str, str] = {}  # the cluster of the first remote pod, by the uid of the manager pod
        world.network.on_write = self._check_leader
        world.manager.follow(self._manager_changed)
        for name, member in world.members.items():
            member.server.follow(partial(self._remote_changed, name))

    # --- who writes --------------------------------------------------------------------------------------------------

    def _check_leader(self, process: Process, host: str, request: Request) -> None:
        """Only the holder of the Lease writes, anything but Leases."""
        if "/leases" in request.path or "dryRun" in request.query:
            return
        lease = self._world.manager.find(resources.LEASES, names.SYSTEM_NAMESPACE, names.LEASE) or {}
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder != process.identity:
            text = f"{process.identity} sends {request.method} {request.path} to {host}, and {holder} leads"
            self._violate("two leaders", process.identity, text)

    # --- the manager's objects ---------------------------------------------------------------------------------------

    def _manager_changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if self._world.manager.writer != "client" or before is None or after is None:
            return
        if path == resources.PODS.path():
            self._check_slot(before, after)
            self._check_patience(before, after)
        elif path == resources.WORKER_CLUSTERS.path():
            self._note_loss(after)
        elif path == resources.WORKLOADS.path() and _is_ready(after) and not _is_ready(before):
            self._check_start(after)
        elif path == resources.PLACEMENTS.path():
            self._check_kept(parse_placement(before), parse_placement(after))

    def _check_slot(self, before: Raw, after: Raw) -> None:
        """No two pods that live have a slot written."""
        slot = annotation(after, names.SLOT_ANNOTATION)
        if not slot or has_ended(after) or slot == annotation(before, names.SLOT_ANNOTATION):
            return
        for other in self._world.manager_pods().values():
            is_same = annotation(other, names.SLOT_ANNOTATION) == slot and _placement_of(other) == _placement_of(after)
            if is_same and meta(other)["uid"] != meta(after)["uid"] and not has_ended(other):
                text = f"{key_of(after)[1]} gets {slot}, which {key_of(other)[1]} has"
                self._violate("slot twice", meta(after)["uid"], text)

    def _note_loss(self, cluster: Raw) -> None:
        name, since = meta(cluster)["name"], (cluster.get("status") or {}).get("lostSince") or ""
        if since != self._gone.get(name, ("",))[0]:
            self._gone[name] = since, self._world.loop.time(), self._world.manager.skew

    def _check_patience(self, before: Raw, after: Raw) -> None:
        """No worker counts as lost before its cluster was unreachable for minutes, unless Ray's head had its node and
        gave it up.
        """
        known = self._gone.get(label(after, names.CLUSTER_LABEL))
        is_lost = not has_ended(before) and (after.get("status") or {}).get("reason") == names.WORKER_LOST
        if not (is_lost and known) or self._world.manager.skew != known[2] or self._has_joined(after):
            return
        if (passed := self._world.loop.time() - known[1]) < _LOST_AFTER:
            text = f"{key_of(after)[1]} is lost {passed:.0f} s after {known[0]}, since when its cluster is unreachable"
            self._violate("lost early", meta(after)["uid"], text)

    def _has_joined(self, pod: Raw) -> bool:
        """Whether Ray's head has or had a node of a worker."""
        member = self._world.members[label(pod, names.CLUSTER_LABEL)]
        uids = {meta(copy)["uid"] for copy in member.kubelet.workers() if _uid_of_manager_pod(copy) == meta(pod)["uid"]}
        return any(node.uid in uids for head in self._world.heads.values() for node in head.nodes.values())

    def _check_start(self, work: Raw) -> None:
        """A gang starts only when each of its shares holds quota, as far as a last look can know."""
        for placement in map(parse_placement, self._world.manager.all(resources.PLACEMENTS)):
            if placement.workload_uid != meta(work)["uid"]:
                continue
            for share in placement.active_shares:
                key = share.cluster, placement.name_of_share(share)
                raw = self._share(placement, share)
                lost_since = self._world.loop.time() - self._lost_at.get(key, 0.0)
                if not (raw and _holds(raw)) and lost_since > self._longest_read(share.cluster):
                    text = f"{meta(work)['name']} starts, and {key[1]} in {key[0]} holds no quota"
                    self._violate("starts with a part", meta(work)["uid"], text)

    def _longest_read(self, cluster: str) -> float:
        return _READ_WITHIN + sum(2 * self._world.network.link(host).latency[1] for host in (cluster, MANAGER)) * 2

    def _check_kept(self, before: Placement, after: Placement) -> None:
        """A plan keeps each share whose workers Ray's head has alive, unless its cluster is drained."""
        kept = {(share.cluster, after.name_of_share(share)) for share in after.active_shares}
        for share in before.active_shares:
            key = share.cluster, before.name_of_share(share)
            raw = self._share(before, share)
            if key in kept or raw is None or not _holds(raw) or not self._is_running(before):
                continue
            heard = [pod for pod in self._world.members[share.cluster].kueue.pods_of(raw) if self._is_heard(pod)]
            if heard and not self._world.members[share.cluster].is_drained:
                text = f"{key[1]} in {key[0]} is dropped, and {key_of(heard[0])[1]} runs there"
                self._violate("share dropped", meta(raw)["uid"], text)

    def _is_running(self, placement: Placement) -> bool:
        work = self._world.manager.find(resources.WORKLOADS, placement.namespace, placement.workload)
        return bool(work and is_condition_true(work, names.ADMITTED) and _is_ready(work))

    def _is_heard(self, pod: Raw) -> bool:
        head = self._world.head_of(label(pod, names.REMOTE_RAY_CLUSTER_LABEL))
        return is_alive(pod) and head is not None and head.hears(meta(pod)["uid"])

    # --- the worker clusters' objects --------------------------------------------------------------------------------

    def _share(self, placement: Placement, share: Share) -> Raw | None:
        server = self._world.members[share.cluster].server
        return server.find(resources.WORKLOADS, placement.namespace, placement.name_of_share(share))

    def _remote_changed(self, cluster: str, path: str, before: Raw | None, after: Raw | None) -> None:
        if path == resources.WORKLOADS.path() and before and _holds(before) and not (after and _holds(after)):
            self._lost_at[cluster, meta(before)["name"]] = self._world.loop.time()
        if self._world.members[cluster].server.writer == restore.WRITER or before is not None or after is None:
            return
        if path == resources.WORKLOADS.path():
            self._check_booked(cluster, after)
        elif path == resources.PODS.path():
            self._check_new(cluster, after)
            self._check_excluded(cluster, after)

    def _check_booked(self, cluster: str, share: Raw) -> None:
        """In calm times no share is created for which there is no quota."""
        calm = 0.0 if self._faults.active else self._world.loop.time() - self._faults.calm_since
        kueue = self._world.members[cluster].kueue
        asked = kueue.tenant + sum(map(cpus_of, kueue.server.all(resources.WORKLOADS)))
        if calm >= _CALM and asked > kueue.cpus:
            text = f"{meta(share)['name']} in {cluster} asks for {cpus_of(share)} CPUs: {asked} of {kueue.cpus}"
            self._violate("overbooked", meta(share)["uid"], text)

    def _check_new(self, cluster: str, copy: Raw) -> None:
        """No remote pod is created for a manager pod that has run, or that had one in another cluster."""
        first = self._first.setdefault(_uid_of_manager_pod(copy), cluster)
        if first != cluster:
            text = f"{key_of(copy)[1]} is created in {cluster}, and was in {first}"
            self._violate("created elsewhere", _uid_of_manager_pod(copy), text)
        pod = self._world.manager_pods().get(_uid_of_manager_pod(copy))
        if pod and (pod.get("status") or {}).get("phase") == "Running":
            text = f"{key_of(copy)[1]} is created, and its manager pod runs already"
            self._violate("created again", meta(pod)["uid"], text)

    def _check_excluded(self, cluster: str, copy: Raw) -> None:
        """No remote pod is created in an excluded cluster while its gang has a free slot elsewhere."""
        pod = self._world.manager_pods().get(_uid_of_manager_pod(copy))
        for placement in map(parse_placement, self._world.manager.all(resources.PLACEMENTS)):
            excluded = placement.excluded_clusters(self._world.manager.now())
            if pod and _placement_of(pod) == placement.name and cluster in excluded:
                for share in placement.active_shares:
                    if share.cluster not in excluded and (free := self._free_slots(placement, share)):
                        text = f"{key_of(pod)[1]} is created in excluded {cluster}; {free} free in {share.cluster}"
                        self._violate("excluded cluster", meta(pod)["uid"], text)

    def _free_slots(self, placement: Placement, share: Share) -> int:
        """Places of a share that holds quota, and that no pod has."""
        member, raw = self._world.members[share.cluster], self._share(placement, share)
        if raw is None or not _holds(raw) or member.is_drained or not placement.is_placed(share):
            return 0
        slots = {slot_of(pod) for pod in self._world.manager_pods().values() if _placement_of(pod) == placement.name}
        living = {annotation(pod, names.SLOT_ANNOTATION) for pod in member.kueue.pods_of(raw) if not has_ended(pod)}
        taken = {str(slot) for slot in slots if slot and slot.share == placement.share_key(share)} | living
        return share.workers - len(taken - {""})

    def differing_shares(self) -> Iterator[tuple[str, str, float, str]]:
        """A share has the counts that the plan says."""
        for placement in map(parse_placement, self._world.manager.all(resources.PLACEMENTS)):
            for share in placement.active_shares:
                raw = self._share(placement, share)
                counts = raw and {one["name"]: one["count"] for one in raw["spec"]["podSets"]}
                planned = {group.role: group.count for group in share.groups}
                if raw and counts != planned:
                    text = f"{meta(raw)['name']} in {share.cluster} has {counts}, and the plan says {planned}"
                    yield "share differs", meta(raw)["uid"], _DIFFERS_WITHIN, text


def _is_ready(work: Raw) -> bool:
    checks = (work.get("status") or {}).get("admissionChecks") or ()
    return any(one["name"] == CHECK and one["state"] == names.CHECK_READY for one in checks)


def _holds(share: Raw) -> bool:
    return is_condition_true(share, names.QUOTA_RESERVED) and not is_condition_true(share, names.EVICTED)


def _uid_of_manager_pod(copy: Raw) -> str:
    return label(copy, names.POD_UID_LABEL)


def _placement_of(pod: Raw) -> str:
    return label(pod, names.PLACEMENT_LABEL)
