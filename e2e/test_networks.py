"""Do real Ray workers find their head by each name that a WorkerCluster may give it, also when its clusters differ in that?"""

from collections.abc import Iterator, Mapping

import pytest

from adapter import names
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import STATIC, found_by, resolving

# That copies call the head so, where nobody dials: tests/integration/test_head.py, tests/unit/rewrite.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def zones(fleet: Clusters) -> Iterator[None]:
    """West's DNS answers for the names that others than Rayspan would look after."""
    with resolving(fleet, "west"):
        yield


def test_by_a_mirror_and_by_a_cluster_set(pair: Job) -> None:
    heads = {"east": {"address": "ServiceMirror"}, "west": {"address": "ClusterSet"}}
    dialled = {"east": ".default.svc.cluster.local", "west": ".default.svc.clusterset.local"}
    with found_by(pair.fleet, heads):
        _runs(pair, dialled)


def test_by_its_address_and_by_a_static_name(pair: Job) -> None:
    heads = {"east": {"address": "PodIP"}, "west": {"address": "Static", "template": STATIC}}
    with found_by(pair.fleet, heads):
        _runs(pair, {"east": "", "west": ".default.ray.example.com"})


def _runs(job: Job, dialled: Mapping[str, str]) -> None:
    """A worker in east and one in west call the head as they are told, and are one RayCluster that does its work."""
    job.submit()
    job.wait_for_workers()
    for name, suffix in dialled.items():
        copies = job.fleet.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL)
        assert copies and all(_dials(copy).endswith(f"-head-svc{suffix}") is bool(suffix) for copy in copies)
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    result = job.result()
    assert result["ok"]
    assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "manager", "west"]
    job.delete()
    job.wait_until_gone()


def _dials(copy: Raw) -> str:
    env = {each["name"]: each.get("value", "") for each in copy["spec"]["containers"][0]["env"]}
    return str(env["FQ_RAY_IP"])
