"""Does a RayCluster whose nodes must show a token span the clusters? KubeRay makes the Secret, and names it in its pods only.

By the head's address with KubeRay's token; by its name with the user's own, and with TLS, whose certificate must have that name.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed import tls
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw

SECRET = "e2e-token"


def test_workers_elsewhere_show_the_token_that_kuberay_made(pair: Job) -> None:
    """authOptions alone: the Secret is named like the RayCluster, and exists before the first worker does."""
    pair.submit(change=lambda spec: spec.update(authOptions={"mode": "token"}))
    pair.wait_for_workers()
    _each_cluster_has_one_copy(pair, pair.status()["rayClusterName"])
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert {node["cluster"] for node in pair.result()["nodes"]} == {"manager", "east", "west"}


@pytest.fixture
def secret(fleet: Clusters) -> Iterator[str]:
    """A token of the user's own. Name it before the job: without it KubeRay finishes no RayJob that is deleted while it runs."""
    fleet.manager.delete("secret", SECRET)
    fleet.manager.kubectl("create", "secret", "generic", SECRET, f"--from-literal=auth_token={'t' * 40}")
    yield SECRET
    fleet.manager.delete("secret", SECRET)


@pytest.mark.long  # it is copied like the one above
@pytest.mark.usefixtures("mirroring", "authority")
def test_by_name_over_tls_they_show_the_users_own_token(secret: str, pair: Job) -> None:
    """authOptions.secretName, TLS and ServiceMirror in one RayCluster, for each takes half a minute."""

    def change(spec: Raw) -> None:
        tls.encrypt(spec)
        spec.update(authOptions={"mode": "token", "secretName": secret})

    pair.submit(change=change)
    pair.wait_for_workers()
    _each_cluster_has_one_copy(pair, secret)
    for name, cluster in pair.fleet.workers.items():
        for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL):
            env = _env(pod)
            assert env["RAY_USE_TLS"]["value"] == "1", name
            assert env["FQ_RAY_IP"]["value"].endswith(f"-head-svc.{NAMESPACE}.svc.cluster.local"), name
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert {node["cluster"] for node in pair.result()["nodes"]} == {"manager", "east", "west"}


def _each_cluster_has_one_copy(job: Job, source: str) -> None:
    """Its worker reads the copy, under a name that the source does not have, and shows it to Ray."""
    for name, cluster in job.fleet.workers.items():
        copies = cluster.items("secrets", NAMESPACE, names.MANAGER_LABEL)
        (copy,) = (
            one for one in copies if one["metadata"]["annotations"][names.COPY_OF_ANNOTATION] == f"Secret {source}"
        )
        (pod,) = cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
        env = _env(pod)
        assert env["RAY_AUTH_MODE"]["value"] == "token", name
        assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == copy["metadata"]["name"] != source, name


def _env(pod: Raw) -> dict[str, Raw]:
    return {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
