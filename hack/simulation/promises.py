"""The invariants of a trial: what may never be, looked at with each change, and what must come in calm times."""

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from adapter import names
from adapter.objects.placement import Exclusion, parse_placement
from adapter.objects.unstructured import (
    Raw,
    annotation,
    condition,
    controller_uid,
    is_condition_true,
    key_of,
    label,
    meta,
    parse_time,
)
from adapter.objects.worker_pod import has_ended, is_deleting
from adapter.shell.kube import resources
from hack.simulation import readiness, restore
from hack.simulation.faults import Faults
from hack.simulation.kubelet import is_alive, runs
from hack.simulation.kueue import cpus_of
from hack.simulation.records import Records
from hack.simulation.world import World

_LOOK_SECONDS = 10.0
# Seconds of calm after which something must have come. A gang that was withdrawn leaves clusters out for up to 75 s,
# and a cluster may be read again for a quarter of a minute.
LEADER_WITHIN, PLACED_WITHIN, SHARE_WITHIN, RUNS_WITHIN = 60.0, 240.0, 180.0, 300.0
HOLDS_AFTER = 600.0  # a gang that waits for so long may hold capacity (docs/policies.md)
CLOCK_AFTER = 150.0  # without a fault that keeps the controller from replacing workers before a clock strikes
_LONGEST_EXCLUSION = timedelta(hours=1)
_HEAD_ASKED_WITHIN = 60.0  # a head that did not answer is asked again after up to a minute


class _Failures(logging.Handler):
    """Counts the product's unexpected exceptions."""

    def __init__(self, promises: "Promises") -> None:
        super().__init__(logging.ERROR)
        self._promises = promises

    def emit(self, record: logging.LogRecord) -> None:
        self._promises.violate("exception", record.getMessage()[:60], record.getMessage()[-1_500:])


class Promises:
    """Watches a world."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world, self._faults, self._loop = world, faults, world.loop
        self._since: dict[tuple[str, str], float] = {}  # since when something is as it should not be for long
        for name, member in world.members.items():
            member.server.follow(partial(self._remote_changed, name))
        world.manager.follow(self._manager_changed)
        self.records = Records(world, faults, self.violate)
        self._failures = _Failures(self)
        logging.getLogger("adapter.shell.supervise").addHandler(self._failures)
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def violate(self, rule: str, about: str, text: str) -> None:
        self._world.trace.violate(rule, about, text)

    # --- what may never be -----------------------------------------------------------------------------------------

    def _remote_changed(self, cluster: str, path: str, before: Raw | None, after: Raw | None) -> None:
        if self._world.members[cluster].server.writer == restore.WRITER:
            return  # the restore changes it, and no controller
        if path == resources.PODS.path() and before is None and after is not None:
            self._check_single(cluster, after)
        elif path == resources.PODS.path() and before and after and is_alive(after):
            self._check_quota(cluster, after)
            if (
                is_deleting(after)
                and not is_deleting(before)
                and self._world.members[cluster].server.writer == "client"
            ):
                self._check_deleted(cluster, before)
        elif path == resources.WORKLOADS.path() and after is None and before is not None:
            self._check_released(cluster, before)
        elif path == resources.WORKLOADS.path() and before and after and not is_condition_true(before, names.EVICTED):
            self._check_evicted(cluster, after)

    def _copies(self, uid: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The remote pods of a manager pod that have not ended, with their clusters."""
        for name, member in self._world.members.items():
            for pod in member.kubelet.workers():
                if label(pod, names.POD_UID_LABEL) == uid and not has_ended(pod):
                    yield name, pod

    def _is_heard(self, pod: Raw) -> bool:
        """Whether Ray's head has a remote pod's node alive."""
        head = self._world.head_of(label(pod, names.REMOTE_RAY_CLUSTER_LABEL))
        return head is not None and head.hears(meta(pod)["uid"])

    def _is_asked(self, pod: Raw) -> bool:
        """Whether Ray's head has its node alive, and was not too busy to answer for long."""
        recovered = self._loop.time() - self._world.heads_answer_since
        return self._is_heard(pod) and self._world.heads_busy_since is None and recovered > _HEAD_ASKED_WITHIN

    def _check_single(self, cluster: str, pod: Raw) -> None:
        uid = label(pod, names.POD_UID_LABEL)
        for name, other in self._copies(uid):
            if name != cluster and not is_deleting(other):
                self.violate("worker twice", uid, f"{key_of(pod)[1]} is created in {cluster} and lives in {name}")

    def _check_deleted(self, cluster: str, copy: Raw) -> None:
        """No remote pod is deleted while its manager pod wants it: its job has quota, its cluster is not drained, and
        its head has not moved.
        """
        pod = self._world.manager_pods().get(label(copy, names.POD_UID_LABEL))
        head = self._world.head_of(label(copy, names.REMOTE_RAY_CLUSTER_LABEL))
        share = cluster, annotation(copy, names.PREBUILT_ANNOTATION)
        is_wanted = (
            pod is not None and not has_ended(pod) and not is_deleting(pod)
            and share in self._wanted_shares() and controller_uid(pod) in self._admitted_jobs()
        )  # fmt: skip
        has_moved = head is None or head.address != annotation(copy, names.HEAD_IP_ANNOTATION)
        if is_wanted and runs(copy) and not has_moved and not self._world.members[cluster].is_drained:
            name = key_of(copy)[1]
            self.violate("deleted while wanted", meta(copy)["uid"], f"{name} runs in {cluster} and is deleted there")

    def _check_quota(self, cluster: str, pod: Raw) -> None:
        server = self._world.members[cluster].server
        namespace, name = key_of(pod)
        share = server.find(resources.WORKLOADS, namespace, annotation(pod, names.PREBUILT_ANNOTATION))
        if share is None or not is_condition_true(share, names.QUOTA_RESERVED):
            if not is_deleting(pod):
                self._begin(f"{cluster}/{name}", "without quota", 60.0, f"{name} runs in {cluster} without quota")
            return
        living = [one for one in self._world.members[cluster].kueue.pods_of(share) if is_alive(one)]
        most = sum(one["count"] for one in share["spec"]["podSets"])
        if len(living) > most:
            self.violate("quota exceeded", meta(share)["uid"], f"{len(living)} of {most} on {meta(share)['name']}")

    def _check_evicted(self, cluster: str, share: Raw) -> None:
        """Kueue's clock stops no worker that is ready, beside one that is not."""
        free = 0.0 if self._faults.disturbing else self._loop.time() - self._faults.free_since
        ready = [one for one in self._world.members[cluster].kueue.pods_of(share) if is_condition_true(one, "Ready")]
        if condition(share, names.EVICTED).get("reason") == readiness.EVICTION and ready and free >= CLOCK_AFTER:
            text = f"{meta(share)['name']} in {cluster} is evicted by the clock, and {key_of(ready[0])[1]} is ready"
            self.violate("stopped by the clock", meta(share)["uid"], text)

    def _check_released(self, cluster: str, share: Raw) -> None:
        living = [one for one in self._world.members[cluster].kueue.pods_of(share) if is_alive(one)]
        if living and meta(share)["uid"] not in self._world.deleted_by_hand:
            text = f"{meta(share)['name']} in {cluster} is deleted, and {key_of(living[0])[1]} still lives there"
            self.violate("quota released early", meta(share)["uid"], text)

    def _manager_changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if path == resources.PODS.path() and before and after and not has_ended(before) and has_ended(after):
            self._check_given_up(after)

    def _check_given_up(self, pod: Raw) -> None:
        uid, status = meta(pod)["uid"], pod["status"]
        copies = list(self._copies(uid))
        text = f"{key_of(pod)[1]} is Failed, {status.get('reason')}: {status.get('message')}"
        for cluster, copy in copies:
            where = f"{text} But it runs in {cluster}"
            if status.get("reason") == names.WORKER_LOST and runs(copy) and self._is_asked(copy):
                self.violate("given up", uid, f"{where}, and Ray's head hears from it.")
            elif status.get("reason") == names.REMOTE_POD_GONE:
                self.violate("not gone", uid, f"{where}.")
            elif status.get("reason") == names.REMOTE_POD_NOT_STARTED and is_condition_true(copy, "Ready"):
                self._begin(uid, "has started", 30.0, f"{where}, and is ready.")

    # --- what must come --------------------------------------------------------------------------------------------

    @property
    def calm(self) -> float:
        """For how long there was no fault."""
        return 0.0 if self._faults.active else self._loop.time() - self._faults.calm_since

    def _begin(self, about: str, rule: str, within: float, text: str) -> None:
        """Something is as it should not be; it is a violation if it is so at all looks for long."""
        since = self._since.setdefault((rule, about), self._loop.time())
        if min(self._loop.time() - since, self.calm) >= within:
            self.violate(rule, about, text)

    def _look(self) -> None:
        seen: set[tuple[str, str]] = set()
        for rule, about, within, text in self._troubles():
            seen.add((rule, about))
            self._begin(about, rule, within, text)
        self._since = {key: since for key, since in self._since.items() if key in seen}
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _troubles(self) -> Iterator[tuple[str, str, float, str]]:
        if self._world.leader() is None:
            yield "no leader", "", LEADER_WITHIN, "no replica leads"
        yield from self._lasting_doubles()
        yield from self._shares_without_reason()
        yield from self.records.differing_shares()
        yield from self._waiting_gangs()
        yield from self._workers_that_do_not_run()

    def _lasting_doubles(self) -> Iterator[tuple[str, str, float, str]]:
        for uid, pod in self._world.manager_pods().items():
            copies = list(self._copies(uid))
            if len(copies) > 1:
                where = ", ".join(name for name, _ in copies)
                yield "worker twice for long", uid, 60.0, f"{key_of(pod)[1]} lives in {where}"
        known = self._world.manager_pods()
        for name, member in self._world.members.items():
            for pod in member.kubelet.workers():
                if label(pod, names.POD_UID_LABEL) not in known and not has_ended(pod):
                    yield "orphan", meta(pod)["uid"], 150.0, f"{key_of(pod)[1]} in {name} has no manager pod"

    def _wanted_shares(self) -> set[tuple[str, str]]:
        """The cluster and name of the shares of all Placements."""
        placements = map(parse_placement, self._world.manager.all(resources.PLACEMENTS))
        return {(share.cluster, one.name_of_share(share)) for one in placements for share in one.active_shares}

    def _shares_without_reason(self) -> Iterator[tuple[str, str, float, str]]:
        wanted = self._wanted_shares()
        for name, member in self._world.members.items():
            for share in member.server.all(resources.WORKLOADS):
                if (name, meta(share)["name"]) not in wanted:
                    text = f"{meta(share)['name']} in {name} is in no Placement"
                    yield "share without reason", meta(share)["uid"], SHARE_WITHIN, text

    def _free(self) -> dict[str, int]:
        return {name: member.kueue.cpus - member.kueue.used() for name, member in self._world.members.items()}

    def _holders(self) -> set[str]:
        """The uids of Workloads that have waited for so long that they may hold capacity against others."""
        now = self._world.manager.now()
        return {
            meta(work)["uid"]
            for work in self._world.manager.all(resources.WORKLOADS)
            if not is_condition_true(work, names.ADMITTED)
            and (since := parse_time(meta(work)["creationTimestamp"]))
            and abs(now - since).total_seconds() >= HOLDS_AFTER
        }

    def _waiting_gangs(self) -> Iterator[tuple[str, str, float, str]]:
        free, shape, holders = self._free(), self._world.shape, self._holders()
        for work in self._world.manager.all(resources.WORKLOADS):
            if is_condition_true(work, names.ADMITTED) or self._backs_off(work) or holders - {meta(work)["uid"]}:
                continue
            wanted = sum(one["count"] for one in work["spec"]["podSets"][1:])
            own = {name: self._held(work, name) for name in free}
            room = {name: free[name] + own[name] for name in free}
            fits = max(room.values()) >= wanted if shape.gang == "SameCluster" else sum(room.values()) >= wanted
            if fits:
                text = f"{meta(work)['name']} waits for {wanted} workers; free: {room}"
                yield "waits", meta(work)["uid"], PLACED_WITHIN, text

    def _backs_off(self, work: Raw) -> bool:
        """Whether the manager's Kueue waits before it queues an evicted Workload again."""
        until = parse_time(((work.get("status") or {}).get("requeueState") or {}).get("requeueAt"))
        return until is not None and until > self._world.manager.now()

    def _held(self, work: Raw, cluster: str) -> int:
        """CPUs that a gang's own shares hold in a cluster."""
        shares = self._world.members[cluster].kueue.holders()
        return sum(cpus_of(share) for share in shares if label(share, names.WORKLOAD_UID_LABEL) == meta(work)["uid"])

    def _workers_that_do_not_run(self) -> Iterator[tuple[str, str, float, str]]:
        """A worker of a job that runs is ready, unless there is no room for a quarter of the job's missing workers."""
        free, excluded = {} if self._holders() else self._free(), self._excluded_clusters()
        admitted, pods = self._admitted_jobs(), self._world.manager_pods()
        missing = Counter(controller_uid(pod) for uid, pod in pods.items() if not self._has_copy(uid))
        for uid, pod in pods.items():
            job, left_out = controller_uid(pod), excluded.get(meta(pod)["ownerReferences"][0]["name"], ())
            room = sum(count for cluster, count in free.items() if cluster not in left_out)
            is_due = job in admitted and (self._has_copy(uid) or (room and 4 * room >= missing[job]))
            if is_due and not is_condition_true(pod, "Ready"):
                message = condition(pod, names.DISPATCHED_CONDITION).get("message")
                text = f"{key_of(pod)[1]} is not ready: {message}; free: {room}"
                yield "does not run", uid, RUNS_WITHIN, text

    def _excluded_clusters(self) -> dict[str, set[str]]:
        """By RayCluster the clusters that its Placement still leaves out, as after workers that did not start there."""
        return {
            one["spec"]["job"]["name"]: {
                exclusion.cluster for exclusion in parse_placement(one).exclusions if self._is_excluded(one, exclusion)
            }
            for one in self._world.manager.all(resources.PLACEMENTS)
        }

    def _is_excluded(self, placement: Raw, exclusion: Exclusion) -> bool:
        """Whether the exclusion is not over, and no worker of the job started there after it began, with all ready."""
        left, since = exclusion.until - self._world.manager.now(), exclusion.not_started_at
        copies = [
            condition(pod, "Ready")
            for pod in self._world.members[exclusion.cluster].kubelet.workers()
            if label(pod, names.REMOTE_RAY_CLUSTER_LABEL) == placement["spec"]["job"]["name"] and is_alive(pod)
        ]
        starts = since and all(ready.get("status") == "True" for ready in copies) and any(
            (parse_time(ready.get("lastTransitionTime")) or since) > since for ready in copies
        )  # fmt: skip
        return timedelta(0) < left <= _LONGEST_EXCLUSION and not starts

    def _admitted_jobs(self) -> set[str]:
        """The uids of jobs whose Workloads are admitted, and not to be evicted because our check says so."""
        return {
            meta(work)["ownerReferences"][0]["uid"]
            for work in self._world.manager.all(resources.WORKLOADS)
            if is_condition_true(work, names.ADMITTED) and not is_condition_true(work, names.EVICTED)
        }

    def _has_copy(self, uid: str) -> bool:
        return any(True for _ in self._copies(uid))

    # --- at the end ------------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Nothing is left of jobs that are gone."""
        for name, member in self._world.members.items():
            for resource in (resources.PODS, resources.WORKLOADS, resources.CONFIG_MAPS):
                for raw in member.server.all(resource):
                    about = f"{name}/{resource.plural}/{key_of(raw)[1]}"
                    self.violate("left behind", about, f"{about} is left of a job that is gone")
        for raw in self._world.manager.all(resources.PLACEMENTS):
            self.violate("left behind", key_of(raw)[1], f"Placement {key_of(raw)[1]} is left")
        self._check_memory()
        logging.getLogger("adapter.shell.supervise").removeHandler(self._failures)

    def _check_memory(self) -> None:
        """A leader forgets what it noted of objects that are gone."""
        for replica in self._world.replicas:
            parts = replica.engine and replica.engine._parts
            if not parts or not replica.leads:
                continue
            for name, notes in vars(parts.transient).items():
                if isinstance(notes, dict | set | list) and notes:
                    text = f"{replica.name} keeps {len(notes)} notes in {name}: {list(notes)[:3]}"
                    self.violate("memory", name, text)
