"""Tests that a RayCluster with its user's token and TLS certificates spans the clusters.

The worker in east has the head's address, and the worker in west its name, which the certificate must cover.
test_networks.py tests KubeRay's own token.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from adapter import names
from hack.testbed import tls
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import found_by

# Secrets are copied before their workers start, without Ray: tests/integration/test_copies.py.
pytestmark = pytest.mark.long

SECRET = "e2e-token"
BY_NAME = {"west": {"address": "ServiceMirror"}}


@dataclass(frozen=True)
class WorkerSide:
    """A job's only worker in a worker cluster, and the names of its copied objects by their source."""

    worker: Raw
    copies: Mapping[str | None, str]

    @property
    def env(self) -> dict[str, Raw]:
        return {entry["name"]: entry for entry in self.worker["spec"]["containers"][0]["env"]}


@dataclass(frozen=True)
class Story:
    """A job's objects in each worker cluster while it ran, its head's answer to a TLS client, and its result."""

    sides: Mapping[str, WorkerSide]
    answer: str
    result: Mapping[str, Any]


@pytest.fixture(scope="module")
def story(fleet: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A job with the user's token and certificates, shared by the tests as it takes half a minute."""
    with (
        _secret(fleet),
        tls.authority(fleet.manager, tmp_path_factory.mktemp("authority")),
        found_by(fleet, BY_NAME),
        removed(Job(fleet, "users-own", 2, apart=True)) as job,
    ):
        job.submit(change=_with_the_users_own)
        job.wait_for_workers()
        sides = _worker_sides(job)
        certificate = ("-cert", tls.FILES["RAY_TLS_SERVER_CERT"], "-key", tls.FILES["RAY_TLS_SERVER_KEY"])
        answer = _gcs_answer(job, *certificate)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        return Story(sides, answer, job.result())


def test_workers_in_other_clusters_use_tls_with_the_users_certificates(story: Story) -> None:
    """The head accepts only certificates of the user's CA, and accepts every worker."""
    for name, side in story.sides.items():
        users = {f"Secret {tls.NAME}", f"ConfigMap {tls.NAME}", f"Secret {SECRET}"}
        assert side.copies.keys() == {*users, None}, name  # None is the anchor
        assert side.env["RAY_USE_TLS"]["value"] == "1", name
    assert "Verification: OK" in story.answer
    assert {node["cluster"] for node in story.result["nodes"]} == {"manager", "east", "west"}


def test_workers_present_the_users_own_token_over_tls(story: Story) -> None:
    """authOptions.secretName: west dials the head by name, east by address."""
    for name, side in story.sides.items():
        _check_token(side, SECRET, name)
    dialled = {name: side.env["FQ_RAY_IP"]["value"] for name, side in story.sides.items()}
    assert dialled["west"].endswith(f"-head-svc.{NAMESPACE}.svc.cluster.local")
    (head,) = (node for node in story.result["nodes"] if node["head"])
    assert dialled["east"] == head["address"]


@contextmanager
def _secret(fleet: Clusters) -> Iterator[None]:
    """Keep the user's token until after the job: without it KubeRay never finishes a RayJob deleted while running."""
    fleet.manager.delete("secret", SECRET)
    fleet.manager.kubectl("create", "secret", "generic", SECRET, f"--from-literal=auth_token={'t' * 40}")
    try:
        yield
    finally:
        fleet.manager.delete("secret", SECRET)


def _with_the_users_own(spec: Raw) -> None:
    tls.encrypt(spec)
    spec.update(authOptions={"mode": "token", "secretName": SECRET})


def _worker_sides(job: Job) -> dict[str, WorkerSide]:
    return {name: WorkerSide(_worker(cluster), _copies(cluster)) for name, cluster in job.fleet.workers.items()}


def _worker(cluster: Cluster) -> Raw:
    (pod,) = cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    return pod


def _copies(cluster: Cluster) -> dict[str | None, str]:
    """Names of the copied objects by source; None for an object without a source."""
    kinds = ("secrets", "configmaps")
    metas = [item["metadata"] for kind in kinds for item in cluster.items(kind, NAMESPACE, names.MANAGER_LABEL)]
    return {meta.get("annotations", {}).get(names.COPIED_FROM_ANNOTATION): meta["name"] for meta in metas}


def _check_token(side: WorkerSide, source: str, name: str) -> None:
    """Check that the worker reads its token from the copied Secret, whose name differs from the source's."""
    copy = side.copies[f"Secret {source}"]
    assert side.env["RAY_AUTH_MODE"]["value"] == "token", name
    assert side.env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == copy != source, name


def _gcs_answer(job: Job, *certificate: str) -> str:
    """The answer of the head's GCS to a TLS client in the head pod."""
    selector = (
        f"{names.RAY_GCS_CLUSTER_LABEL}={job.status()['rayClusterName']},{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"
    )
    (head,) = job.manager.items("pods", NAMESPACE, selector)
    command = ("openssl", "s_client", "-brief", "-connect", "127.0.0.1:6379", "-CAfile", tls.CA, *certificate)
    # A gRPC server closes the connection in a way that s_client reports as an error.
    shell = f"{' '.join(command)} </dev/null 2>&1 || true"
    return job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "sh", "-c", shell)
