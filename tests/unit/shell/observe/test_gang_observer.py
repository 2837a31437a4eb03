"""The facts about a RayCluster that KubeRay created for a RayService: its owner and its problems."""

import pytest

from adapter import names
from adapter.objects import unstructured as objects
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import Job
from tests.unit.builders import START, make_meta, make_workload
from tests.unit.stores import Sight, fill

WORK = make_workload(owner="RayCluster")
(OWNER,) = WORK["metadata"]["ownerReferences"]
SERVICE = {"apiVersion": "ray.io/v1", "kind": names.RAY_SERVICE, "name": "chat", "uid": "of-chat", "controller": True}
CHAT = Job("ray.io/v1", names.RAY_SERVICE, objects.key_of(WORK)[0], "chat", "of-chat")


def ray_cluster(suspend: bool = True, uid: str = OWNER["uid"], *owners: Raw) -> Raw:
    return {"metadata": make_meta(OWNER["name"], uid=uid, ownerReferences=list(owners)), "spec": {"suspend": suspend}}


@pytest.mark.parametrize(
    ("found", "service", "problem"),
    [
        pytest.param(ray_cluster(True, OWNER["uid"], SERVICE), CHAT, "", id="a suspended RayCluster of a RayService"),
        pytest.param(ray_cluster(False, OWNER["uid"], SERVICE), CHAT, "apply kustomize/components/rayservice",
                     id="started by KubeRay"),
        pytest.param(ray_cluster(False), None, "", id="a RayCluster of a user"),
        pytest.param(ray_cluster(False, "another", SERVICE), None, "", id="a recreated RayCluster of the same name"),
        pytest.param(None, None, "", id="an unknown RayCluster"),
    ],
)  # fmt: skip
def test_the_service_of_a_ray_cluster(found: Raw | None, service: Job | None, problem: str) -> None:
    sight = Sight({"east": 9}, onShareLost="Restart")
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_clusters, *([found] if found else []))
    gang = sight.facts.gang_observer.facts(objects.key_of(WORK), START)
    assert gang.workload and gang.workload.job
    assert gang.workload.job.service == service
    assert problem in gang.job.planning_problem and bool(gang.job.planning_problem) is bool(problem)
    assert bool(gang.job.start_warning) is bool(service)
