"""Tests that real Ray workers find their head by DNS names that Rayspan does not provide, a different one per cluster.

The workers present the token that KubeRay made; KubeRay names its Secret only in its pods. test_kinds.py tests the
head's address and its mirror with every kind of worker.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import STATIC, found_by, resolving

# The names in remote pods without Ray: tests/integration/test_head.py, tests/unit/rewrite.
pytestmark = pytest.mark.long


@pytest.fixture
def names_resolve(fleet: Clusters) -> Iterator[None]:
    """DNS of both worker clusters answers as a Multi-Cluster Services implementation or an administrator's would."""
    with resolving(fleet, "east"), resolving(fleet, "west"):
        yield


@pytest.fixture
def head_addresses(names_resolve: None, fleet: Clusters) -> Iterator[None]:
    """East uses a static name for the head, west a ClusterSet name, until the job is removed."""
    with found_by(fleet, {"east": {"address": "Static", "template": STATIC}, "west": {"address": "ClusterSet"}}):
        yield


def test_workers_find_a_head_by_static_and_by_clusterset_name(head_addresses: None, pair: Job) -> None:
    pair.submit(change=lambda spec: spec.update(authOptions={"mode": "token"}))
    pair.wait_for_workers()
    token = pair.status()["rayClusterName"]  # KubeRay gives its Secret the name of the RayCluster
    for name, suffix in {"east": ".default.ray.example.com", "west": ".default.svc.clusterset.local"}.items():
        worker = pair.fleet.workers[name]
        (remote_pod,) = worker.items("pods", NAMESPACE, names.MANAGER_LABEL)
        assert _env(remote_pod)["FQ_RAY_IP"]["value"].endswith(f"-head-svc{suffix}"), name
        assert _token_secret(remote_pod) == _copied_secret(worker, token) != token, name
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    result = pair.result()
    assert result["ok"]
    assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "manager", "west"]


def _env(remote_pod: Raw) -> dict[str, Raw]:
    return {each["name"]: each for each in remote_pod["spec"]["containers"][0]["env"]}


def _token_secret(remote_pod: Raw) -> str:
    """The name of the Secret whose token a worker presents."""
    env = _env(remote_pod)
    assert env["RAY_AUTH_MODE"]["value"] == "token"
    return str(env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"])


def _copied_secret(worker: Cluster, secret: str) -> str:
    """The name of the copy of `secret` in a worker cluster."""
    secrets = worker.items("secrets", NAMESPACE, names.MANAGER_LABEL)
    (copy,) = (
        copy for copy in secrets if copy["metadata"]["annotations"][names.COPIED_FROM_ANNOTATION] == f"Secret {secret}"
    )
    return str(copy["metadata"]["name"])
