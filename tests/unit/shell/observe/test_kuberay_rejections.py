"""A gang knows KubeRay's rejection of its job, of a RayJob's RayCluster, and of no other object."""

from typing import Any

import pytest

from adapter import names
from adapter.admission.kuberay_validation import DOUBT_SECONDS
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from tests.unit import builders
from tests.unit.builders import START, make_meta, make_workload
from tests.unit.objects.test_kuberay_events import rejection
from tests.unit.stores import Sight, fill

NAMESPACE = builders.NAMESPACE
FINAL = {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": "Name too long"}


class Bench:
    """One job with its Workload and KubeRay's event, before a controller with a clock of its own."""

    def __init__(self, kind: str = "RayCluster", **work: Any) -> None:
        self.sight, self.work, self.now = Sight({"east": 9}), make_workload(owner=kind, **work), 0.0
        self.sight.memory._monotonic = lambda: self.now
        (owner,) = self.work["metadata"]["ownerReferences"]
        owner["uid"], self.name = "of-job", owner["name"]
        fill(self.sight.manager.workloads, self.work)

    def store_cluster(self, version: int, generation: int, accepted: int = 0, uid: str = "of-job", **more: Any) -> None:
        raw = ray_object(self.name, uid, version=version, generation=generation, accepted=accepted, **more)
        fill(self.sight.manager.ray_clusters, raw)

    def store_event(self, version: int, object_version: int = 7, uid: str = "of-job") -> None:
        fill(self.sight.manager.kuberay_events, event(uid, version, object_version))

    def find_rejection(self) -> str:
        return self.sight.facts.gang_observer.facts(key_of(self.work), START).job.kuberay_rejection


def ray_object(
    name: str, uid: str, *, version: int = 7, generation: int = 1, accepted: int = 0, suspend: bool = True, **more: Any
) -> Raw:
    metadata = {**make_meta(name, uid=uid), "resourceVersion": str(version), "generation": generation}
    status = {"status": {"observedGeneration": accepted}} if accepted else {}
    return {"metadata": metadata, "spec": {"suspend": suspend}} | status | more


def event(uid: str, version: int = 9, object_version: int = 7) -> Raw:
    raw = rejection(version, "RAY_REDIS_ADDRESS is set.", object_version=str(object_version))
    raw["metadata"]["namespace"] = NAMESPACE
    raw["involvedObject"]["uid"] = uid
    return raw


@pytest.mark.parametrize(
    ("events", "rejected"),
    [
        pytest.param([event("of-job")], True, id="its own event"),
        pytest.param([event("of-another")], False, id="the event of an earlier job of that name"),
        pytest.param([], False, id="no event"),
    ],
)
def test_a_ray_cluster_is_rejected_by_its_event(events: list[Raw], rejected: bool) -> None:
    bench = Bench()
    bench.store_cluster(version=7, generation=1)
    fill(bench.sight.manager.kuberay_events, *events)
    text = bench.find_rejection()
    assert bool(text) is rejected
    assert not rejected or text == (
        f"RayCluster {bench.name}: KubeRay rejects it (InvalidRayClusterSpec): RAY_REDIS_ADDRESS is set. Correct "
        "the spec of the job; KubeRay then validates it again."
    )


def test_a_ray_cluster_that_is_corrected_is_free_once_kuberay_accepts_it() -> None:
    """Also where the edit only removes a field."""
    bench = Bench()
    bench.store_cluster(version=7, generation=1)
    bench.store_event(version=9)
    assert bench.find_rejection()
    bench.store_cluster(version=10, generation=2)
    assert bench.find_rejection(), "KubeRay has not accepted it yet"
    bench.store_cluster(version=11, generation=2, accepted=2)
    assert not bench.find_rejection()


def test_a_ray_cluster_that_was_accepted_before_is_free_with_the_edit() -> None:
    """KubeRay's status does not show that it accepts the correction, because it stays as it was."""
    bench = Bench()
    bench.store_cluster(version=7, generation=2, accepted=1)
    bench.store_event(version=9)
    assert bench.find_rejection()
    bench.now += 1
    bench.store_cluster(version=10, generation=3, accepted=1)
    assert not bench.find_rejection()
    bench.now += 1
    bench.store_event(version=11)
    assert bench.find_rejection(), "it is still invalid, or the event is late"
    bench.now += DOUBT_SECONDS
    assert not bench.find_rejection(), "the event may have been late"
    bench.store_cluster(version=12, generation=4, accepted=1, suspend=False)
    bench.store_event(version=13)
    assert bench.find_rejection(), "Kueue has resumed it, and KubeRay rejects it again"
    bench.now += 10 * DOUBT_SECONDS
    bench.store_cluster(version=14, generation=5, accepted=1)
    assert bench.find_rejection()


def test_a_new_process_waits_for_a_while_with_an_event_that_may_be_older_than_an_edit() -> None:
    bench = Bench()
    bench.store_cluster(version=10, generation=3, accepted=1)
    bench.store_event(version=9)
    assert bench.find_rejection()
    bench.now += DOUBT_SECONDS
    assert not bench.find_rejection()


def test_a_placed_job_is_not_evicted_for_an_event_in_doubt() -> None:
    bench = Bench(check=names.CHECK_READY)
    bench.store_cluster(version=10, generation=3, accepted=1)
    bench.store_event(version=9)
    assert not bench.find_rejection()
    bench.now += DOUBT_SECONDS
    assert not bench.find_rejection(), "it is still suspended, so KubeRay had nothing to start"
    bench.store_cluster(version=11, generation=4, accepted=1, suspend=False)
    assert bench.find_rejection(), "Kueue has resumed it, and KubeRay has not accepted it"


def test_notes_last_as_long_as_their_ray_cluster() -> None:
    bench = Bench()
    bench.store_cluster(version=10, generation=3, accepted=1)
    bench.store_event(version=9)
    assert bench.find_rejection()
    bench.now += DOUBT_SECONDS
    bench.sight.memory.keep_only([], [], ["of-job"], [])
    assert not bench.find_rejection()
    bench.sight.memory.keep_only([], [], [], [])
    assert bench.find_rejection(), "it is observed for the first time again"


async def test_gangs_behind_a_rejected_job_are_planned_again_once() -> None:
    bench = Bench()
    read = bench.sight.facts.gang_observer.read_uncached
    bench.store_cluster(version=7, generation=1)
    assert not await read(key_of(bench.work))
    bench.store_event(version=9)
    assert await read(key_of(bench.work)), "it takes no capacity any more"
    assert not await read(key_of(bench.work))
    bench.store_cluster(version=11, generation=2, accepted=2)
    assert await read(key_of(bench.work)), "it takes capacity again"


def test_a_ray_cluster_whose_head_lives_is_not_rejected() -> None:
    bench = Bench()
    bench.store_cluster(version=7, generation=1)
    bench.store_event(version=9)
    head_owner = {"kind": "RayCluster", "name": bench.name, "uid": "of-job", "controller": True}
    labels = {"ray.io/cluster": bench.name}
    fill(bench.sight.manager.heads, {"metadata": make_meta("head", labels=labels, ownerReferences=[head_owner])})
    assert bench.find_rejection() == ""


def test_a_ray_job_is_rejected_by_its_status_for_good() -> None:
    bench = Bench("RayJob")
    fill(bench.sight.manager.ray_jobs, ray_object(bench.name, "of-job", status=FINAL))
    assert bench.find_rejection() == (
        f"RayJob {bench.name}: KubeRay rejects it (ValidationFailed): Name too long. Delete the job, correct it, "
        "and submit it again."
    )


@pytest.mark.parametrize("controller", ["of-job", "of-another"])
def test_a_ray_job_is_rejected_with_its_own_ray_cluster(controller: str) -> None:
    bench = Bench("RayJob")
    fill(bench.sight.manager.ray_jobs, ray_object(bench.name, "of-job", status={"rayClusterName": "child"}))
    child = ray_object("child", "of-child")
    child["metadata"]["ownerReferences"] = [{"kind": "RayJob", "uid": controller, "controller": True}]
    fill(bench.sight.manager.ray_clusters, child)
    fill(bench.sight.manager.kuberay_events, event("of-child"))
    assert bool(bench.find_rejection()) is (controller == "of-job")
