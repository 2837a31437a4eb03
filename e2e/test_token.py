"""Does a RayCluster span the clusters whose nodes must show their user's token, and encrypt with their user's certificates?

Its worker in east has the head's address, and its worker in west has its name, for which the certificate must stand. KubeRay's own
token is shown in test_networks.py.
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

# That a Secret is there before its worker, where no Ray needs it: tests/integration/test_copies.py.
pytestmark = pytest.mark.long

SECRET = "e2e-token"
BY_NAME = {"west": {"address": "ServiceMirror"}}


@dataclass(frozen=True)
class There:
    """What is of a job in a worker cluster: its one worker, and what was copied for it, by what that is the copy of."""

    worker: Raw
    copies: Mapping[str | None, str]

    @property
    def env(self) -> dict[str, Raw]:
        return {entry["name"]: entry for entry in self.worker["spec"]["containers"][0]["env"]}


@dataclass(frozen=True)
class Story:
    """What a job had in each worker cluster while it ran, what its head said to a client with a certificate, and what it found."""

    there: Mapping[str, There]
    answer: str
    result: Mapping[str, Any]


@pytest.fixture(scope="module")
def story(fleet: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A job with the user's token and certificates, for each takes half a minute."""
    with (
        _secret(fleet),
        tls.authority(fleet.manager, tmp_path_factory.mktemp("authority")),
        found_by(fleet, BY_NAME),
        removed(Job(fleet, "users-own", 2, apart=True)) as job,
    ):
        job.submit(change=_with_the_users_own)
        job.wait_for_workers()
        there = _there(job)
        certificate = ("-cert", tls.FILES["RAY_TLS_SERVER_CERT"], "-key", tls.FILES["RAY_TLS_SERVER_KEY"])
        answer = _asked_by(job, *certificate)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        return Story(there, answer, job.result())


def test_workers_elsewhere_speak_tls_with_the_users_certificates(story: Story) -> None:
    """The head takes nobody who has no certificate of that CA, and every worker is taken."""
    for name, there in story.there.items():
        users = {f"Secret {tls.NAME}", f"ConfigMap {tls.NAME}", f"Secret {SECRET}"}
        assert there.copies.keys() == {*users, None}, name  # and the anchor
        assert there.env["RAY_USE_TLS"]["value"] == "1", name
    assert "Verification: OK" in story.answer
    assert {node["cluster"] for node in story.result["nodes"]} == {"manager", "east", "west"}


def test_by_name_over_tls_they_show_the_users_own_token(story: Story) -> None:
    """authOptions.secretName: in west by the head's name, and in east by its address."""
    for name, there in story.there.items():
        _shows(there, SECRET, name)
    called = {name: there.env["FQ_RAY_IP"]["value"] for name, there in story.there.items()}
    assert called["west"].endswith(f"-head-svc.{NAMESPACE}.svc.cluster.local")
    (head,) = (node for node in story.result["nodes"] if node["head"])
    assert called["east"] == head["address"]


@contextmanager
def _secret(fleet: Clusters) -> Iterator[None]:
    """A token of the user's own. It goes after the job: without it KubeRay finishes no RayJob that is deleted while it runs."""
    fleet.manager.delete("secret", SECRET)
    fleet.manager.kubectl("create", "secret", "generic", SECRET, f"--from-literal=auth_token={'t' * 40}")
    try:
        yield
    finally:
        fleet.manager.delete("secret", SECRET)


def _with_the_users_own(spec: Raw) -> None:
    tls.encrypt(spec)
    spec.update(authOptions={"mode": "token", "secretName": SECRET})


def _there(job: Job) -> dict[str, There]:
    return {name: There(_worker(cluster), _copies(cluster)) for name, cluster in job.fleet.workers.items()}


def _worker(cluster: Cluster) -> Raw:
    (found,) = cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    return found


def _copies(cluster: Cluster) -> dict[str | None, str]:
    """Their names, by what each is the copy of; None for what is the copy of nothing."""
    found = [one for kind in ("secrets", "configmaps") for one in cluster.items(kind, NAMESPACE, names.MANAGER_LABEL)]
    return {
        one["metadata"].get("annotations", {}).get(names.COPIED_FROM_ANNOTATION): one["metadata"]["name"]
        for one in found
    }


def _shows(there: There, source: str, name: str) -> None:
    """The worker reads the copy, under a name that the source does not have, and shows it to Ray."""
    copy = there.copies[f"Secret {source}"]
    assert there.env["RAY_AUTH_MODE"]["value"] == "token", name
    assert there.env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == copy != source, name


def _asked_by(job: Job, *certificate: str) -> str:
    """What the head's GCS answers to a client in the head's own pod."""
    which = f"{names.RAY_GCS_CLUSTER_LABEL}={job.status()['rayClusterName']},{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"
    (head,) = job.manager.items("pods", NAMESPACE, which)
    ask = ("openssl", "s_client", "-brief", "-connect", "127.0.0.1:6379", "-CAfile", tls.CA, *certificate)
    shell = f"{' '.join(ask)} </dev/null 2>&1 || true"  # a gRPC server ends such a talk in a way that s_client calls an error
    return job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "sh", "-c", shell)
