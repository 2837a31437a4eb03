"""The life of an elastic RayCluster, simulated with the real observers and the real planner.

The world has two worker clusters whose Kueue admits what fits, and it applies each action as its writer would.
The controller may restart, and so lose its memory, at any step.
"""

import asyncio
import copy
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import (
    Action,
    DeletePlacement,
    DeleteShare,
    DeleteSharePods,
    DryRunPod,
    EmitEvent,
    Plan,
    RequeueAfter,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.gang import lifecycle
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import gang_key, parse_workload
from adapter.planning import rounds
from adapter.rewrite.dry_run_pod import DryRunResult
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, says
from tests.unit.builders import QUEUE, at, make_cluster_queue, make_pod, stamp
from tests.unit.stores import Sight, fill, make_template

JOB = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "pi", "uid": "uid-of-pi", "controller": True}
NOW = at(1_000)


class World:
    """A RayCluster with one worker group, Kueue's slices of it, our Placement and its shares."""

    def __init__(self, workers: int, *, least: int = 0, **cores: int) -> None:
        self.cores, self.least, self.sight = cores, least, Sight(cores)
        self.slices: list[Raw] = []
        self.place: Raw | None = None
        self.shares: dict[str, dict[str, Raw]] = {cluster: {} for cluster in cores}
        self.pods: list[Raw] = []
        self.suspended, self.said, self.writes = True, list[str](), 0
        self.released = 0
        self.follow(workers)

    def follow(self, workers: int) -> None:
        """Kueue puts another slice in the place of the last, and reserves its quota."""
        if self.slices:
            self._finish(self.slices[-1])
        number = len(self.slices) + 1
        label = {"labels": {names.PLACEMENT_LABEL: self.name}} if not self.suspended and self.place else {}
        template = {**make_template("1"), "metadata": label}
        made: Raw = {
            "metadata": builders.make_meta(
                f"pi-{number}",
                creationTimestamp=stamp(number),
                resourceVersion="1",
                ownerReferences=[JOB],
                annotations={names.ELASTIC_ANNOTATION: "true"},
            ),
            "spec": {
                "queueName": QUEUE,
                "podSets": [
                    {"name": "head", "count": 1, "template": make_template("1")},
                    {"name": "workers", "count": workers, "template": template},
                ],
            },
        }
        self.slices.append(made)
        self.reserve(number)

    def reserve(self, since: float) -> None:
        self.slices[-1]["status"] = {
            "conditions": [builders.make_condition(names.QUOTA_RESERVED, since=since)],
            "admissionChecks": [{"name": builders.CHECK, "state": names.CHECK_PENDING, "message": ""}],
        }

    def _finish(self, raw: Raw) -> None:
        raw["status"]["conditions"].append(builders.make_condition(names.FINISHED, reason=names.SLICE_REPLACED))

    def shrink(self, workers: int) -> None:
        self.slices[-1]["spec"]["podSets"][1]["count"] = workers

    def stop(self) -> None:
        """Kueue evicts the slice, and the job is suspended."""
        self.slices[-1]["status"] = {"conditions": [builders.make_condition(names.EVICTED)]}
        self.suspended, self.pods = True, []

    @property
    def name(self) -> str:
        return str((self.place or {}).get("metadata", {}).get("name") or "")

    @property
    def where(self) -> dict[str, int]:
        """What holds quota in each cluster."""
        return {c: total for c in self.cores if (total := sum(map(_count, self.shares[c].values())))}

    @property
    def state(self) -> str:
        return str(self.slices[-1]["status"]["admissionChecks"][0]["state"])

    @property
    def reason(self) -> str:
        return str(((self.place or {}).get("status") or {}).get("reason") or "")

    def restart(self) -> None:
        """Another process, which remembers nothing."""
        self.sight = Sight(self.cores)

    def rest(self) -> None:
        """Look until nothing is to be written any more."""
        quiet = 0
        for _ in range(40):
            before = self.writes
            self.look()
            quiet = quiet + 1 if self.writes == before else 0
            if quiet == 2:  # a plan that says nothing new writes nothing, and is followed by one more look
                return
        raise AssertionError(f"it never comes to rest: {self.said[-5:]}")

    def look(self) -> None:
        for action in self.decided():
            self._do(action)
            if isinstance(action, Plan):
                break
        self._admit()

    def decided(self) -> list[Action]:
        self._show()
        gangs = self.sight.facts.gang_observer
        return lifecycle.decide(gangs.facts(gang_key(self.slices[-1]), NOW), NOW)

    def _show(self) -> None:
        manager = self.sight.manager
        count = self.slices[-1]["spec"]["podSets"][1]["count"]
        groups = [{"groupName": "Workers", "replicas": count, "minReplicas": min(self.least, count)}]
        job: Raw = {
            "metadata": builders.make_meta("pi", uid="uid-of-pi"),
            "spec": {"suspend": self.suspended, "workerGroupSpecs": groups},
        }
        fill(manager.ray_clusters, job)
        fill(manager.workloads, *copy.deepcopy(self.slices))
        fill(manager.placements, *([copy.deepcopy(self.place)] if self.place else []))
        fill(manager.pods, *self.pods)
        for cluster, cores in self.cores.items():
            member, standing = self.sight.members[cluster], list(self.shares[cluster].values())
            fill(member.workloads, *copy.deepcopy(standing))
            fill(member.cluster_queues, make_cluster_queue(cores, used=sum(map(_count, standing))))
            member._forget_tree()

    def _admit(self) -> None:
        """The worker clusters' Kueue admits what fits; the job runs once our check is ready."""
        if self.slices[-1]["status"].get("admissionChecks") and self.state == names.CHECK_READY:
            if self.suspended:
                self.slices[-1]["status"]["conditions"].append(builders.make_condition(names.ADMITTED))
            self.suspended = False

    def _do(self, action: Action) -> None:
        match action:
            case Plan():
                self._plan(action)
            case RetargetPlacement():
                assert self.place
                work = action.workload
                spec: Raw = {
                    "workload": {"name": work.name, "uid": work.uid},
                    "attempt": work.attempt,
                    "wanted": action.wanted_workers,
                }
                self._place(self.place["spec"] | ({"shares": []} if action.drops_shares else spec))
                self.sight.memory.planned_versions.pop("uid-of-place", None)
            case UpdatePlacementStatus():
                assert self.place
                self.place["status"] = {**self.place.get("status", {}), **action.status}
                self.writes += 1
            case SetCheck():
                (entry,) = self.slices[-1]["status"]["admissionChecks"]
                entry |= {
                    "state": action.state,
                    "message": action.message,
                    "podSetUpdates": list(action.podset_updates),
                }
                self.writes += 1
            case Reserve():
                self._make(action)
            case DeleteShare():
                del self.shares[action.reservation.cluster][action.reservation.name]
                self.released += 1
                self.writes += 1
            case DryRunPod():
                self.sight.facts.dry_run_answers.add_answer(
                    action.target.cluster,
                    action.workload,
                    action.podset,
                    DryRunResult(unknown_reason="nobody asks"),
                    circumstances=self.sight.facts.dry_run_answers.circumstances(
                        action.target.cluster, action.workload.namespace
                    ),
                )
                self.writes += 1
            case EmitEvent():
                self.said.append(f"{action.reason}: {action.message}")
            case RequeueAfter():
                pass
            case DeletePlacement() | DeleteSharePods() | _:
                raise AssertionError(action)

    def _plan(self, action: Plan) -> None:
        body, _, _, _ = asyncio.run(self.sight.planning.plan_round(action, NOW))
        memory, version = self.sight.memory, self.sight.fleet.capacity_versions.version
        memory.note_plan("uid-of-place", version, None, None, action.unusable_slots, action.withheld_workers)
        if action.newly_withheld:
            memory.withhold_workers("uid-of-place", action.newly_withheld, action.withheld_for)
        if action.placement is None:
            self.place = {**body, "metadata": body["metadata"] | {"uid": "uid-of-place"}}
            self.writes += 1
        elif not rounds.is_unchanged(action, action.placement, body["spec"]):
            self._place(body["spec"])

    def _place(self, spec: Raw) -> None:
        assert self.place
        self.place = {**self.place, "spec": dict(spec)}
        self.sight.fleet.capacity_versions.mark_all_changed()  # as the handlers do, when shares were changed
        self.writes += 1

    def _make(self, action: Reserve) -> None:
        target, count = action.target, sum(count for _, count, _ in action.groups)
        cluster = target.cluster
        assert count + sum(map(_count, self.shares[cluster].values())) <= self.cores[cluster], "more than there is"
        assert target.share not in self.shares[cluster], "a name is never used twice at once"
        held = [builders.make_condition(kind) for kind in (names.QUOTA_RESERVED, names.ADMITTED)]
        (group,) = action.share.groups
        self.shares[cluster][target.share] = {
            "metadata": builders.make_meta(
                target.share,
                uid=f"{target.share}-{self.writes}",
                labels={names.PLACEMENT_LABEL: target.placement, names.WORKLOAD_UID_LABEL: target.workload_uid},
                annotations={names.WORKLOAD_ANNOTATION: target.workload, names.ROUND_ANNOTATION: str(target.round)},
            ),
            "spec": {"podSets": [{"name": group.role, "count": count, "template": {}}]},
            "status": {"conditions": held, "admission": {"clusterQueue": "team-a"}},
        }
        self.writes += 1

    def run(self, *, most: int = 99) -> None:
        """KubeRay makes the pods, and each takes the first free place; `most` are made."""
        assert self.place
        free = [slot for slot in _slots(self.place) if slot not in {_slot(pod) for pod in self.pods}]
        for slot in free[: most - len(self.pods)]:
            pod = make_pod(f"pi-{slot.replace('/', '-')}", placement=self.name, slot=slot)
            self.pods.append({**pod, "status": {"phase": "Running", "conditions": [builders.make_condition("Ready")]}})

    def leave(self, cluster: str) -> None:
        self.pods = [pod for pod in self.pods if not _slot(pod).startswith(cluster)]

    def sizes(self, cluster: str) -> list[int]:
        """For how many workers each share of a cluster holds quota."""
        return sorted(map(_count, self.shares[cluster].values()))


def _count(share: Raw) -> int:
    return sum(int(one["count"]) for one in share["spec"]["podSets"])


def _slot(pod: Raw) -> str:
    return str(pod["metadata"]["annotations"].get(names.SLOT_ANNOTATION))


def _slots(place: Raw) -> list[str]:
    read = parse_placement(place)
    return [
        f"{share.cluster}/{read.round_of(share)}/{group.role}/{index}"
        for share in read.active_shares
        for group in share.groups
        for index in range(group.count)
    ]


def started(workers: int = 2, *, least: int = 0, **cores: int) -> World:
    world = World(workers, least=least, **(cores or {"east": 2, "west": 2}))
    world.rest()
    assert world.state == names.CHECK_READY and not world.suspended
    world.run(most=workers)
    world.rest()
    return world


def test_an_elastic_job_scales_up_and_returns_unused_shares() -> None:
    world = started()
    name = world.name
    world.follow(4)
    world.rest()
    assert (world.where, world.name, world.state) == ({"east": 2, "west": 2}, name, names.CHECK_READY)
    assert world.reason == "All workers are placed: 2 east, 2 west."
    world.run(most=4)
    world.leave("west")
    world.shrink(2)
    world.rest()
    assert (world.where, world.reason) == ({"east": 2}, "All workers are placed: 2 east.")
    world.leave("east")
    world.shrink(0)
    world.rest()
    assert (world.where, world.reason) == ({}, "No worker of this job needs to be placed now.")
    world.follow(1)
    world.rest()
    assert (world.where, world.released) == ({"east": 1}, 4)


def test_an_observed_remote_pod_is_known_after_a_restart() -> None:
    """Its cluster may be unreachable then: pending workers are given up, running ones are not."""
    world = started(2, least=0, east=2)
    world.pods[0]["status"]["conditions"].append(builders.make_condition(names.DISPATCHED_CONDITION))
    for pod, want in ((world.pods[0], {("east", 1)}), (world.pods[1], set[tuple[str, int]]())):
        world.restart()
        world.pods = [pod]
        world._show()
        assert (
            world.sight.facts.gang_observer.facts(gang_key(world.slices[-1]), NOW).pods.shares_with_remote_pods == want
        )


def test_each_worker_returns_exactly_its_own_share() -> None:
    world = started(2, least=2, east=8)
    assert world.sizes("east") == [2], "what it always has comes together"
    world.follow(7)
    world.rest()
    world.run()
    assert world.sizes("east") == [1] * 5 + [2]
    single = [pod for pod in world.pods if "/1/" not in _slot(pod)]
    for left in range(6, 1, -1):
        world.pods.remove(single.pop(left % len(single)))
        world.shrink(left)
        world.rest()
        assert world.where == {"east": left}
        world.restart()
        world.rest()
    assert world.sizes("east") == [2] and world.released == 5


def test_workers_beyond_the_minimum_return_their_shares_one_by_one() -> None:
    world = started(4, least=1, east=3, west=1)
    assert (world.sizes("east"), world.sizes("west")) == ([1, 1, 1], [1])
    world.pods = [pod for pod in world.pods if not _slot(pod).startswith("west")]
    world.shrink(3)
    world.rest()
    assert world.where == {"east": 3}


def test_a_free_slot_of_the_first_shares_is_taken_first() -> None:
    world = started(2, least=2, east=8)
    world.follow(4)
    world.rest()
    world.run()
    world.pods = world.pods[1:]
    world.shrink(3)
    world.rest()
    assert world.sizes("east") == [1, 1, 2], "a share goes as a whole"
    world.follow(4)
    world.rest()
    world.run()
    assert world.sizes("east") == [1, 1, 2] and len(world.pods) == 4 and len(set(map(_slot, world.pods))) == 4


@pytest.mark.parametrize(
    ("cluster", "owner", "kind", "held"),
    [
        pytest.param("pi", "somebody", "RayCluster", False, id="a pod of another RayCluster than its label"),
        pytest.param("unheard-of", "", "", False, id="a pod without an owner"),
        pytest.param("unheard-of", "somebody", "ConfigMap", False, id="a pod of another kind of owner"),
        pytest.param("pi", "uid-of-pi", "RayCluster", True, id="a pod of the job"),
        pytest.param("unheard-of", "somebody", "RayCluster", True, id="a pod of an unknown RayCluster"),
    ],
)
def test_a_pod_with_a_forged_slot_keeps_no_quota(cluster: str, owner: str, kind: str, held: bool) -> None:
    world = started()
    world.follow(4)
    world.rest()
    world.run(most=4)
    world.leave("west")
    slot = next(slot for slot in _slots(world.place or {}) if slot.startswith("west"))
    forged = make_pod("forged", placement=world.name, slot=slot)
    forged["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] = cluster
    owned = {"kind": kind, "name": "unheard-of", "uid": owner, "controller": True}
    forged["metadata"]["ownerReferences"] = [owned] if owner else []
    world.pods.append(forged)
    world.shrink(2)
    world.rest()
    assert world.where == {"east": 2, **({"west": 1} if held else {})}, (
        "of those who left, one at most is kept a share for"
    )


def test_a_scale_up_without_capacity_waits_for_it() -> None:
    world = started(2, east=2, west=1)
    world.follow(6)
    world.rest()
    assert world.where == {"east": 2, "west": 1} and world.released == 0
    assert world.reason.startswith(
        "3 of 6 workers are placed: 2 east, 1 west; the others start as soon as there is capacity"
    )
    world.cores["west"] = 2
    world.sight.fleet.capacity_versions.mark_all_changed()
    world.rest()
    assert world.where == {"east": 2, "west": 2}
    world.cores["east"] = 9
    world.restart()
    world.rest()
    assert world.where == {"east": 4, "west": 2} and world.reason.startswith("All workers")


def test_added_workers_without_a_manager_pod_return_their_shares_and_the_others_stay() -> None:
    world, created = _grown_to_four()
    _wait(world, 890)
    assert world.where == {"east": 4}
    _wait(world, 11)
    assert (world.where, _excluded(world)) == ({"east": 2}, [])
    assert "2 workers of the job were not created in a worker cluster" in world.reason
    assert world.reason.endswith("All other workers are placed: 2 east.")
    assert world.pods == created


def test_a_worker_that_is_lost_later_finds_the_clusters_open_although_others_are_refused() -> None:
    world, _ = _grown_to_four()
    _wait(world, 901)
    _lose_first_share(world)
    world.rest()
    assert (world.where, len(world.pods)) == ({"east": 2}, 1), "one share for the lost worker, none for the refused"
    world.run(most=2)
    world.pods = [_of_pi(pod, names.DISPATCHED_CONDITION, "Ready") for pod in world.pods]
    _wait(world, 840)
    assert world.where == {"east": 2}
    _wait(world, 61)
    assert world.where == {"east": 4}, "they are tried again"


def test_refused_workers_get_their_slots_once_kuberay_has_created_their_pods() -> None:
    world, created = _grown_to_four()
    _wait(world, 901)
    world.pods = [*created, _of_pi(make_pod("pi-new", placement=world.name, slot=""))]
    world.rest()
    assert world.where == {"east": 3}
    world.pods.append(_of_pi(make_pod("pi-newer", placement=world.name, slot="")))
    world.rest()
    assert world.where == {"east": 4}


def _lose_first_share(world: World) -> None:
    """Somebody deletes the share of the job's first worker; KubeRay deletes the worker's pod."""
    lost = world.pods.pop(0)
    _, round_, *_ = _slot(lost).split("/")
    del world.shares["east"][f"{world.name}-{round_}"]


def test_added_workers_without_a_remote_pod_are_tried_in_one_other_cluster() -> None:
    world, created = _grown_to_four()
    for where in ({"east": 2, "west": 2}, {"east": 2}):
        world.pods = list(created)
        world.run()
        world.pods = [*created, *map(_of_pi, world.pods[2:])]
        world.rest()
        _wait(world, 901)
        assert (world.where, _excluded(world)) == (where, ["east"])
    assert "Capacity is reserved for them again in 1800s" in world.reason
    world.pods = created
    world.rest()
    assert world.where == {"east": 2, "west": 2}, "their pods are gone, so others may be created"


def _grown_to_four() -> tuple[World, list[Raw]]:
    """A job that has two workers, which are created, and wants two more; with the pods of the first."""
    world = started(2, east=9, west=9)
    created = [_of_pi(pod, names.DISPATCHED_CONDITION, "Ready") for pod in world.pods]
    world.pods = list(created)
    world.follow(4)
    world.rest()
    return world, created


def _wait(world: World, seconds: float) -> None:
    monotonic = world.sight.memory._monotonic
    world.sight.memory._monotonic = lambda: monotonic() + seconds
    world.rest()


def _excluded(world: World) -> list[str]:
    return [each["cluster"] for each in (world.place or {})["spec"]["excluded"]]


def _of_pi(pod: Raw, *conditions: str) -> Raw:
    """The pod as one of the job's RayCluster, with these conditions."""
    owner = {"kind": "RayCluster", "name": "pi", "uid": "uid-of-pi", "controller": True}
    labels = {**pod["metadata"]["labels"], names.RAY_GCS_CLUSTER_LABEL: "pi"}
    metadata = {**pod["metadata"], "labels": labels, "ownerReferences": [owner]}
    return {**pod, "metadata": metadata, "status": {"conditions": list(map(builders.make_condition, conditions))}}


def test_a_second_scale_up_before_the_first_is_admitted() -> None:
    world = started(1, east=4)
    world.follow(2)
    world.follow(4)
    world.rest()
    assert world.where == {"east": 4} and world.released == 0


def test_an_evicted_job_restarts_as_a_whole_with_further_rounds() -> None:
    world = started()
    world.follow(4)
    world.rest()
    name, last = world.name, (world.place or {})["spec"]["round"]
    world.stop()
    world.rest()
    assert world.where == {} and world.name == name
    assert world.reason == "The job holds no quota in the manager cluster now."
    world.reserve(500)
    world.cores["west"] = 1
    world.rest()
    assert (world.where, world.state, world.suspended) == ({}, names.CHECK_PENDING, True), "all or nothing"
    world.cores["west"] = 2
    world.sight.fleet.capacity_versions.mark_all_changed()
    world.rest()
    assert (world.where, world.state, world.name) == ({"east": 2, "west": 2}, names.CHECK_READY, name)
    assert (world.place or {})["spec"]["round"] > last


def test_the_shares_of_a_deleted_placement_are_not_taken_for_those_of_the_next_one() -> None:
    """The first share holds quota for three workers, and the next plan has a share for each of them."""
    world = started(3, least=3, east=8)
    assert world.sizes("east") == [3]
    world.place = None
    world.restart()
    world.rest()
    assert (world.sizes("east"), world.released) == ([1, 1, 1], 1)
    assert [slot.split("/")[1] for slot in _slots(world.place or {})] == ["2", "3", "4"]


def test_an_unobserved_eviction_is_noticed() -> None:
    world = started()
    world.restart()
    world.stop()
    world.reserve(500)
    world.rest()
    assert (world.where, world.state) == ({"east": 2}, names.CHECK_READY) and world.released == 2


def test_a_job_without_workers_gets_them_later() -> None:
    world = World(0, east=1)
    world.rest()
    assert (world.place, world.state) == (None, names.CHECK_READY)
    updates = world.slices[-1]["status"]["admissionChecks"][0]["podSetUpdates"]
    world.follow(2)
    world.slices[-1]["spec"]["podSets"][1]["template"]["metadata"] = {"labels": updates[0]["labels"]}
    world.rest()
    assert world.where == {"east": 1} and world.reason.startswith("1 of 2 workers are placed: 1 east")
    assert world.name == updates[0]["labels"][names.PLACEMENT_LABEL]


def test_a_job_resumed_by_others_is_answered_when_suspended_again() -> None:
    """It would run in the manager, or in a part of the workers, as if Kueue had started it."""
    world = World(4, east=2)
    world.rest()
    world.suspended = False
    world.rest()
    assert (world.where, world.state) == ({}, names.CHECK_PENDING)
    message = world.slices[-1]["status"]["admissionChecks"][0]["message"]
    assert message.startswith("spec.suspend is false, but Kueue has not admitted it")
    world.suspended, world.cores["east"] = True, 4
    world.sight.fleet.capacity_versions.mark_all_changed()
    world.rest()
    assert (world.where, world.state) == ({"east": 4}, names.CHECK_READY)


def test_a_job_scaled_down_in_the_queue_starts_with_its_new_size() -> None:
    world = World(4, east=2)
    world.rest()
    assert world.state == names.CHECK_PENDING
    world.shrink(2)
    world.rest()
    assert (world.where, world.state) == ({"east": 2}, names.CHECK_READY)


def test_a_replaced_slice_alone_changes_nothing() -> None:
    world = started()
    world._finish(world.slices[-1])
    world.rest()
    assert world.where == {"east": 2} and world.released == 0


@pytest.mark.parametrize(("unplanned", "pointed"), [(False, True), (False, False), (True, False)])
async def test_whether_the_job_runs_is_read_before_its_shares_are_judged(unplanned: bool, pointed: bool) -> None:
    """A job store behind the Workload store would show a running job as suspended.

    Its shares would be deleted, or it would be planned as a starting job.
    """
    world = started_by_hand()
    world.follow(4)
    if unplanned:
        world.place = None
    if pointed:
        assert world.place
        world.place["spec"]["attempt"] = parse_workload(world.slices[-1]).attempt
    world.suspended = True
    world._show()
    job = {"metadata": builders.make_meta("pi", uid="uid-of-pi", resourceVersion="9"), "spec": {"suspend": False}}
    server = Server(lists=[says({"items": [job]})])
    key = gang_key(world.slices[-1])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        world.sight.manager.client = client
        await world.sight.facts.gang_observer.read_uncached(key)
    assert [asked.method for asked in server.asked] == ([] if pointed else ["GET"])
    assert world.sight.facts.gang_observer.facts(key, NOW).job.unsuspended is not pointed


def started_by_hand() -> World:
    """As `started`, without a loop of its own."""
    world = World(2, east=2, west=2)
    work = parse_workload(world.slices[-1])
    assert work.job
    world.slices[-1]["status"]["conditions"].append(builders.make_condition(names.ADMITTED))
    raw = builders.make_placement(world.slices[-1], shares={"east": {"workers": 2}}, placedRound=1)
    raw["spec"]["job"] = {"kind": "RayCluster", "name": "pi", "uid": work.job.uid, "apiVersion": "ray.io/v1"}
    world.place = raw
    return world


@pytest.mark.parametrize("gated", [True, False])
def test_a_pod_without_quota_in_the_manager_waits_for_no_slot(gated: bool) -> None:
    world = started_by_hand()
    failed = make_pod("a", placement=world.name, slot="west/1/workers/0", phase="Failed")
    waits = make_pod("b", placement=world.name)
    waits["spec"] = {**waits.get("spec", {}), "schedulingGates": [{"name": names.ELASTIC_GATE}] if gated else []}
    world.pods = [failed, waits]
    world._show()
    facts = world.sight.facts.gang_observer.facts(gang_key(world.slices[-1]), NOW)
    assert (
        facts.pods.has_unplaced_workers,
        facts.pods.shares_with_manager_pods,
        facts.pods.shares_with_live_manager_pods,
    ) == (
        not gated,
        frozenset({("west", 1)}),
        frozenset[tuple[str, int]](),
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("follow"), st.integers(0, 6)),
        st.tuples(st.just("shrink"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["stop", "restart", "look", "run", "pods", "end"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["east", "west"]), st.integers(0, 4)),
    ),
    max_size=10,
)


@given(steps=STEPS, least=st.integers(0, 2))
def test_any_history_settles_with_the_workers_that_fit(steps: list[tuple[str, int]], least: int) -> None:
    """No unneeded share stays, no worker waits while a slot is free, and the Placement's name never changes."""
    world, seen = started(1, least=least), set[str]()
    for what, number in steps:
        _step(world, what, number)
        seen.add(world.name)
    if world.slices[-1]["status"].get("admissionChecks") is None:
        world.reserve(900)
    world.restart()
    world.rest()
    world.rest()
    wanted, held = world.slices[-1]["spec"]["podSets"][1]["count"], sum(world.where.values())
    if world.state != names.CHECK_READY:
        assert (held, world.suspended) == (0, True) and wanted > sum(world.cores.values())
        return
    free = sum(max(cores - world.where.get(c, 0), 0) for c, cores in world.cores.items())
    assert held >= wanted or not free
    assert len(seen - {""}) <= 1
    empty = {name: count for name, count in _empty(world) if count == 1}
    assert not empty or held <= wanted, "a worker that has left holds nothing"


def _empty(world: World) -> Iterator[tuple[str, int]]:
    """The shares that no pod is on, and for how many workers they hold quota."""
    on = {(slot.split("/")[0], int(slot.split("/")[1])) for slot in map(_slot, world.pods)}
    for cluster, shares in world.shares.items():
        for name, share in shares.items():
            if (cluster, int(share["metadata"]["annotations"][names.ROUND_ANNOTATION])) not in on:
                yield name, _count(share)


def _step(world: World, what: str, number: int) -> None:
    match what:
        case "follow":
            if world.slices[-1]["status"].get("admissionChecks"):
                world.follow(number)
        case "shrink":
            world.shrink(min(number, world.slices[-1]["spec"]["podSets"][1]["count"]))
        case "stop":
            world.stop()
        case "restart":
            world.restart()
        case "look":
            if world.slices[-1]["status"].get("admissionChecks"):
                world.look()
        case "run":
            world.rest()
        case "pods" | "end":
            _pods(world, what, number)
        case cluster:
            world.cores[cluster] = max(number, world.where.get(cluster, 0))


def _pods(world: World, what: str, number: int) -> None:
    """Workers come to the places that there are, or one leaves."""
    if what == "end":
        del world.pods[number : number + 1]
    elif world.place and not world.suspended:
        world.run(most=world.slices[-1]["spec"]["podSets"][1]["count"])


def test_a_slice_is_no_gang_of_its_own() -> None:
    """Were it looked at by its own name, it would be planned beside its job."""
    world = started()
    facts = world.sight.facts.gang_observer.facts((builders.NAMESPACE, "pi-1"), NOW)
    assert facts.workload is None and lifecycle.decide(facts, NOW) == []


def test_a_scale_up_is_reported_like_a_start() -> None:
    world = started(1, east=4)
    world.follow(3)
    world.rest()
    assert [one for one in world.said if one.startswith(("Placed", "Replaced"))][
        -1
    ] == "Placed: 2 of 2 workers to east."


def test_the_shares_of_all_slices_are_found_under_one_key() -> None:
    world = started(1, east=4)
    world.follow(2)
    world.rest()
    gangs = [share["metadata"]["annotations"][names.WORKLOAD_ANNOTATION] for share in world.shares["east"].values()]
    assert gangs == [parse_workload(world.slices[0]).gang_name] * 2 and len(world.shares["east"]) == 2


@pytest.mark.parametrize("gone", [True, False])
def test_a_finished_job_leaves_nothing(gone: bool) -> None:
    world = started()
    world.follow(4)
    world.rest()
    world._finish(world.slices[-1])
    world.slices[-1]["status"]["conditions"][-1]["reason"] = "Succeeded"
    if gone:
        world.slices[-1]["metadata"]["deletionTimestamp"] = stamp()
    world.rest()
    assert world.where == {}
