"""Do real Ray workers find their head by the names that others than Rayspan make resolve, each worker cluster by another one?

They show it the token that KubeRay made, for which it names a Secret in its pods only. By the head's address and by its mirror every
kind of worker finds it in test_kinds.py.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed.clusters import Cluster, Clusters
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
    pair.submit(change=lambda spec: spec.update(authOptions={"mode": "token"}))
    pair.wait_for_workers()
    token = pair.status()["rayClusterName"]  # KubeRay calls its Secret like the RayCluster
    for name, suffix in {"east": ".default.ray.example.com", "west": ".default.svc.clusterset.local"}.items():
        worker = pair.fleet.workers[name]
        (copy,) = worker.items("pods", NAMESPACE, names.MANAGER_LABEL)
        assert _env(copy)["FQ_RAY_IP"]["value"].endswith(f"-head-svc{suffix}"), name
        assert _shown(copy) == _copied(worker, token) != token, name
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    result = pair.result()
    assert result["ok"]
    assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "manager", "west"]


def _env(copy: Raw) -> dict[str, Raw]:
    return {each["name"]: each for each in copy["spec"]["containers"][0]["env"]}


def _shown(copy: Raw) -> str:
    """The Secret of which a worker shows the token."""
    env = _env(copy)
    assert env["RAY_AUTH_MODE"]["value"] == "token"
    return str(env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"])


def _copied(worker: Cluster, secret: str) -> str:
    """The copy of that Secret in a worker cluster; its name is one that the source does not have."""
    found = worker.items("secrets", NAMESPACE, names.MANAGER_LABEL)
    (copy,) = (
        one for one in found if one["metadata"]["annotations"][names.COPIED_FROM_ANNOTATION] == f"Secret {secret}"
    )
    return str(copy["metadata"]["name"])
