"""A tenant whose objects are too many or too large is left as he is, and everybody else goes on.

The controller under test gives each namespace a hundredth of its memory (hack/testbed/pace.py), so a few pods with long
annotations are enough. No test makes large objects in large numbers.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from adapter import names
from adapter.objects.unstructured import uid_of
from hack.lab.base.paths import REPO
from hack.testbed.audit import Request
from hack.testbed.auditlog import log_of
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.pace import CRAMPED
from hack.testbed.stage import Stage

pytestmark = pytest.mark.alone

_JSON = {"Accept": "application/json", "Content-Type": "application/json"}
LARGE_COMMAND = 750_000  # characters
FILLER, FILLER_PODS = "x" * 200_000, 7
FINALIZER = f"{names.DOMAIN}/filler"
INCOMPLETE = names.EventReason.NAMESPACE_INCOMPLETE


@pytest.fixture
def cramped(standing: Controller, parked: Clusters, tmp_path: Path) -> Iterator[Controller]:
    """A controller that runs, with little memory for each namespace."""
    standing.stop()
    made = Controller(standing.manager, tmp_path, pace=CRAMPED)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def tenant(stage: Stage) -> Iterator[Stage]:
    """The namespace that is filled, with queues, a policy and a check of its own."""
    with Stage(stage.fleet, f"{stage.name}-x") as made:
        yield made


def _fill(cluster: Cluster, namespace: str, labels: Mapping[str, str]) -> None:
    """Make pods that fit on no node and fill a namespace's share; `_empty` them.

    By their finalizer they stay, though the controller deletes remote pods without a manager pod.
    """
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"filler-{number}",
                "namespace": namespace,
                "labels": {**labels, "filler": "true"},
                "annotations": {f"{names.DOMAIN}/filler": FILLER},
                "finalizers": [FINALIZER],
            },
            "spec": {"containers": [{"name": "c", "image": "none"}], "nodeSelector": {"no": "such"}},
        }
        for number in range(FILLER_PODS)
    ]
    cluster.kubectl("create", "-f", "-", input=yaml.safe_dump_all(pods))


def _empty(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "delete", "pod", "-l", "filler=true", "--wait=false")
    names_of_pods = [pod["metadata"]["name"] for pod in cluster.items("pods", namespace, "filler=true")]
    for name in names_of_pods:
        cluster.kubectl("-n", namespace, "patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


@contextmanager
def _filled(cluster: Cluster, namespace: str, labels: Mapping[str, str]) -> Iterator[None]:
    try:
        _fill(cluster, namespace, labels)
        yield
    finally:
        _empty(cluster, namespace)


def _wait_until_incomplete(tenant: Stage, place: str, controller: Controller) -> None:
    def is_told() -> bool:
        return place in tenant.events(tenant.name).get(INCOMPLETE, "")

    wait(is_told, 60, f"the namespace is told to be incomplete in {place}", controller.tail)


def _delete_job(stage: Stage, name: str) -> None:
    stage.manager.kubectl("-n", stage.name, "delete", "raycluster", name, "--wait=false")


def _remote_uids(stage: Stage) -> set[str]:
    return {
        uid_of(pod) for pods in stage.remote().values() for pod in pods if "filler" not in pod["metadata"]["labels"]
    }


def test_a_full_namespace_leaves_other_tenants_alone(stage: Stage, tenant: Stage, cramped: Controller) -> None:
    """Another tenant's job is placed, runs and ends. The full one's job is placed once there is room again."""
    stage.build({"east": 4, "west": 4})
    tenant.build({"east": 4, "west": 4})
    with _filled(tenant.manager, tenant.name, {names.PLACEMENT_LABEL: "x"}):
        _wait_until_incomplete(tenant, "the manager cluster", cramped)
        tenant.ray_cluster("late", workers=1)
        stage.ray_cluster("pi", workers=2)
        wait(lambda: stage.running(2), 90, "another tenant's job runs", cramped.tail)
        assert not tenant.placement("late"), "nothing is decided about the full one's"
        _delete_job(stage, "pi")
        wait(lambda: not stage.leftovers(), 90, "another tenant's job has ended", cramped.tail)
    wait(lambda: tenant.running(1), 120, "the full namespace is complete again", cramped.tail)


def test_an_object_that_is_too_large_costs_nobody_a_list(
    stage: Stage, tenant: Stage, cramped: Controller, audited: None
) -> None:
    """It changes many times. Its namespace is incomplete, as `why` says, and another tenant's job is placed."""
    stage.build({"east": 4, "west": 4})
    tenant.build({"east": 4, "west": 4})
    stage.ray_cluster("before", workers=1)
    wait(lambda: stage.running(1), 90, "a job runs", cramped.tail)
    log = log_of(stage.manager)
    with _large_head(tenant):
        _wait_until_incomplete(tenant, "the manager cluster", cramped)
        assert "too large to be read" in tenant.events(tenant.name)[INCOMPLETE]
        for number in range(10):
            _label_large_head(tenant, number)
        tenant.ray_cluster("late", workers=1)
        stage.ray_cluster("pi", workers=2)
        wait(lambda: stage.running(3), 90, "another tenant's job runs", cramped.tail)
        assert not tenant.placement("late")
        assert "is incomplete: in the manager cluster" in _why(tenant, "late")
        assert not [request for request in log.take() if _lists_all_pods(request)]
    wait(lambda: tenant.running(1), 120, "the namespace is complete again", cramped.tail)
    wait(lambda: "is complete again" in tenant.events(tenant.name)[INCOMPLETE], 30, "its event", cramped.tail)
    assert "is incomplete" not in _why(tenant, "late")


@contextmanager
def _large_head(tenant: Stage) -> Iterator[None]:
    """A pod of 0.8 MB, of which an API server writes 4.5: an escaped character has six bytes.

    An event has at most 4 MiB, and Kueue's webhook answers no review of more than 7.
    """
    container = {"name": "c", "image": "none", "command": ["<" * LARGE_COMMAND]}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "large", "namespace": tenant.name, "labels": {names.RAY_NODE_TYPE_LABEL: names.HEAD}},
        "spec": {"containers": [container], "nodeSelector": {"no": "such"}},
    }
    reader = tenant.manager.reader
    reader.ask("POST", reader.path("pods", None, tenant.name), {}, _JSON, body)
    try:
        yield
    finally:
        tenant.manager.kubectl("-n", tenant.name, "delete", "pod", "large", "--grace-period=0", "--force")


def _label_large_head(tenant: Stage, number: int) -> None:
    """By its status, because Kueue's webhook would get the pod twice in one review."""
    patch = json.dumps({"metadata": {"labels": {"number": str(number)}}})
    words = ("patch", "pod", "large", "--subresource=status", "--type=merge", "-p", patch)
    tenant.manager.kubectl("-n", tenant.name, *words)


def _lists_all_pods(request: Request) -> bool:
    kind = request.kind
    return (kind.verb, kind.what, request.namespace) == ("list", "pods", "") and kind.client.startswith("rayspan")


def _why(stage: Stage, job: str) -> str:
    config = str(stage.manager.kubeconfig)
    command = [sys.executable, "-m", "adapter", "why", job, "-n", stage.name, "--kubeconfig", config]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPO).stdout


def test_ended_jobs_of_a_full_namespace_give_their_quota_back(stage: Stage, tenant: Stage, cramped: Controller) -> None:
    """What runs goes on; what is deleted is gone within a minute, in every cluster."""
    tenant.build({"east": 2, "west": 2})
    tenant.ray_cluster("ended", workers=2)
    wait(lambda: tenant.running(2), 90, "the first job runs", cramped.tail)
    tenant.ray_cluster("stays", workers=2)
    wait(lambda: tenant.running(4), 90, "the second job runs", cramped.tail)
    before = _remote_uids(tenant)
    with _filled(tenant.manager, tenant.name, {names.PLACEMENT_LABEL: "x"}):
        _wait_until_incomplete(tenant, "the manager cluster", cramped)
        assert _remote_uids(tenant) == before
        _delete_job(tenant, "ended")
        wait(lambda: tenant.reserving() == 1, 60, "the ended job has given its quota back", cramped.tail)
        assert len(_remote_uids(tenant) & before) == 2, "the other one's workers are the same"
        _delete_job(tenant, "stays")
        wait(lambda: tenant.reserving() == 0, 60, "the other job has given its quota back", cramped.tail)


def test_a_full_namespace_of_a_worker_cluster_hides_nobody_elses_workers(
    stage: Stage, tenant: Stage, cramped: Controller
) -> None:
    """The cluster stays connected, no worker is replaced, and the full one's quota there comes back after its job."""
    stage.build({"east": 4, "west": 0})
    tenant.build({"east": 4, "west": 0})
    stage.ray_cluster("pi", workers=2)
    tenant.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2) and tenant.running(2), 120, "both jobs run", cramped.tail)
    before = _remote_uids(stage), _remote_uids(tenant)
    east = stage.fleet.workers["east"]
    labels = tenant.remote()["east"][0]["metadata"]["labels"]
    ours = {name: labels[name] for name in (names.MANAGER_LABEL, names.CLUSTER_LABEL)}
    with _filled(east, tenant.name, ours):
        _wait_until_incomplete(tenant, "worker cluster east", cramped)
        assert condition(stage.manager.get("workerclusters", "east"), names.CONNECTED).get("status") == "True"
        stage.ray_cluster("next", workers=2)
        wait(lambda: stage.running(4), 90, "another tenant's next job runs there", cramped.tail)
        assert before[0] <= _remote_uids(stage) and before[1] == _remote_uids(tenant)
        _delete_job(tenant, "pi")
        wait(lambda: tenant.reserving() == 0, 60, "the full one's quota is back", cramped.tail)
        assert before[0] <= _remote_uids(stage)
