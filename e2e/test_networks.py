"""Do real Ray workers find their head by each name that a WorkerCluster may give it, also when its clusters differ in that?"""

from collections.abc import Mapping

from adapter import names
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import STATIC, found_by, resolving


def test_by_a_mirror_and_by_a_cluster_set(job: Job) -> None:
    heads = {"east": {"address": "ServiceMirror"}, "west": {"address": "ClusterSet"}}
    dialled = {"east": ".default.svc.cluster.local", "west": ".default.svc.clusterset.local"}
    with resolving(job.fleet, "west"), found_by(job.fleet, heads):
        _runs(job, dialled)


def test_by_a_static_name_and_by_its_address(job: Job) -> None:
    heads = {"east": {"address": "Static", "template": STATIC}, "west": {"address": "PodIP"}}
    with resolving(job.fleet, "east"), found_by(job.fleet, heads):
        _runs(job, {"east": ".default.ray.example.com", "west": ""})


def _runs(job: Job, dialled: Mapping[str, str]) -> None:
    """Two workers in east and one in west call the head as they are told, and are one RayCluster that does its work."""
    job.workers = 3
    job.submit()
    job.wait_for_workers()
    for name, suffix in dialled.items():
        copies = job.fleet.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL)
        assert copies and all(_dials(copy).endswith(f"-head-svc{suffix}") is bool(suffix) for copy in copies)
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    result = job.result()
    assert result["ok"]
    assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "east", "manager", "west"]
    job.delete()
    job.wait_until_gone()


def _dials(copy: Raw) -> str:
    env = {each["name"]: each.get("value", "") for each in copy["spec"]["containers"][0]["env"]}
    return str(env["FQ_RAY_IP"])
