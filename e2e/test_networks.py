"""Do real Ray workers find their head by the names that others than Rayspan make resolve, each worker cluster by another one?

By the head's address and by its mirror every kind of worker finds it in test_kinds.py.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import STATIC, found_by, resolving

# That copies call the head so, where nobody dials: tests/integration/test_head.py, tests/unit/rewrite.
pytestmark = pytest.mark.long


@pytest.fixture
def names_resolve(fleet: Clusters) -> Iterator[None]:
    """Both worker clusters' DNS answers for such names, as a Multi-Cluster Services implementation or an admin's own would."""
    with resolving(fleet, "east"), resolving(fleet, "west"):
        yield


@pytest.fixture
def found(names_resolve: None, fleet: Clusters) -> Iterator[None]:
    """East has its admin's name for a head, west that of a cluster set. It ends after the job."""
    with found_by(fleet, {"east": {"address": "Static", "template": STATIC}, "west": {"address": "ClusterSet"}}):
        yield


def test_by_a_static_name_and_by_a_cluster_set(found: None, pair: Job) -> None:
    pair.submit()
    pair.wait_for_workers()
    for name, suffix in {"east": ".default.ray.example.com", "west": ".default.svc.clusterset.local"}.items():
        (copy,) = pair.fleet.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL)
        assert _dials(copy).endswith(f"-head-svc{suffix}"), name
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    result = pair.result()
    assert result["ok"]
    assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "manager", "west"]


def _dials(copy: Raw) -> str:
    env = {each["name"]: each.get("value", "") for each in copy["spec"]["containers"][0]["env"]}
    return str(env["FQ_RAY_IP"])
