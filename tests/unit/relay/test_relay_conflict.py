"""What does not work through the relay, by a job and its podsets."""

from dataclasses import replace

import pytest

from adapter.objects.rayjob import read_ray_cluster, read_ray_job
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job, PodSet
from adapter.relay import relay_pod
from adapter.relay.relay_conflict import find_conflict

V2_BY_VARIABLE = {"containers": [{"name": "ray-head", "env": [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]}]}
V1 = "version 1 of Ray's autoscaler knows workers by their IPs, not by names; set spec.autoscalerOptions.version to v2"


def podset(name: str, spec: Raw) -> PodSet:
    return PodSet(name, 1, {"spec": spec}, frozenset())


@pytest.mark.parametrize(
    ("cluster", "head", "want"),
    [
        ({}, {}, ""),
        ({"enableInTreeAutoscaling": True}, {}, V1),
        ({"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v1"}}, {}, V1),
        ({"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}, {}, ""),
        ({"enableInTreeAutoscaling": True}, V2_BY_VARIABLE, ""),
    ],
    ids=["fixed size", "no version", "version 1", "version 2", "version 2 by its variable"],
)
def test_the_autoscaler_knows_nodes_by_name_since_version_2(cluster: Raw, head: Raw, want: str) -> None:
    podsets = [podset("head", head), podset("workers", V2_BY_VARIABLE)]
    assert find_conflict(read_ray_cluster({"spec": cluster}), podsets) == want
    in_job = find_conflict(read_ray_job({"spec": {"rayClusterSpec": cluster}}), podsets)
    assert in_job == want.replace("spec.", "spec.rayClusterSpec.")


def test_the_sidecar_that_quota_counts_is_no_conflict() -> None:
    counted = PodSet("workers", 1, relay_pod.counted_template({"spec": {}}, "relay:1"), frozenset())
    assert find_conflict(read_ray_cluster({}), [podset("head", {}), counted]) == ""


def test_the_field_of_a_rayservice_is_named() -> None:
    service = Job("ray.io/v1", "RayService", "demo", "chat", "uid")
    job = replace(read_ray_cluster({"spec": {"enableInTreeAutoscaling": True}}), service=service)
    assert "set spec.rayClusterConfig.autoscalerOptions.version to v2" in find_conflict(job, [])


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"hostNetwork": True}, "the template of workers has hostNetwork, where"),
        (
            {"initContainers": [{"name": "x"}, {"name": "rayspan-relay"}]},
            "the template of workers has a container rayspan-relay, ",
        ),
        ({"containers": [{"name": "rayspan-relay-hook"}]}, "the template of workers has a container rayspan-relay-h"),
        ({"volumes": [{"name": "rayspan-relay"}]}, "the template of workers has a volume rayspan-relay, "),
        ({"hostNetwork": False, "containers": [{"name": "relay"}], "volumes": [{"name": "x"}]}, ""),
    ],
    ids=["hostNetwork", "a sidecar's name", "a head's sidecar's name", "the volume's name", "nothing"],
)
def test_a_template_leaves_room_for_the_sidecars(spec: Raw, want: str) -> None:
    conflict = find_conflict(read_ray_cluster({}), [podset("head", {}), podset("workers", spec)])
    assert conflict.startswith(want) and bool(conflict) == bool(want)
