"""Kueue of east asks an autoscaler for the nodes of a share by a ProvisioningRequest before it admits the share.

Real API servers, Kueue and KubeRay, and the autoscaler's own CRD in east. The test plays the autoscaler.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab.base.paths import REPO
from hack.testbed import nodes, provisioning
from hack.testbed.clusters import Clusters, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

pytestmark = pytest.mark.alone

NEW = "provisioned"
NO_NODES = "Out of capacity in this zone"


@pytest.fixture(scope="module", autouse=True)
def provisioned(fleet: Clusters) -> Iterator[None]:
    """Kueue of east knows ProvisioningRequests."""
    with provisioning.known(fleet.workers["east"]):
        yield


def test_a_gang_starts_when_its_nodes_have_come(stage: Stage, running: Controller) -> None:
    """No node has the flavor's label before. Meanwhile the sentence names the check, the cluster and its message."""
    stage.build({"east": 2, "west": 0}, timeout="300s", node_labels={"east": {"pool": NEW}})
    check = provisioning.add_check(stage, "east", retries=0)
    stage.ray_cluster("pi", workers=2)
    request = _request(stage, running)
    east = stage.fleet.workers["east"]
    provisioning.answer(east, request, "Accepted", "")
    waits = f"east: AdmissionCheck {check} there is Pending"
    wait(lambda: waits in stage.reason("pi"), 60, "it says what it waits for", lambda: dump(stage, running))
    assert stage.state("pi") == PlacementState.RESERVING and waits in _why(stage)
    assert [podset["count"] for podset in request["spec"]["podSets"]] == [2]
    assert not stage.remote()["east"], "no worker is created before its node"

    with nodes.added(east, NEW):
        provisioning.answer(east, _request(stage, running), "Provisioned", "")
        wait(lambda: stage.running(2), 120, "two workers run", lambda: dump(stage, running))
        assert stage.where("pi") == "2 east"
        for copy in stage.remote()["east"]:
            assert copy["spec"]["nodeName"] == NEW
            assert copy["metadata"]["annotations"][names.PROVISIONING_REQUEST_ANNOTATION] == request["metadata"]["name"]


@pytest.mark.parametrize("retries", [0, 3], ids=["rejected", "retried"])
def test_a_cluster_without_nodes_gives_the_gang_up(stage: Stage, running: Controller, retries: int) -> None:
    """Its quota there is free at once, and the gang runs in west."""
    stage.build({"east": 2, "west": 2}, timeout="300s")
    check = provisioning.add_check(stage, "east", retries=retries)
    stage.ray_cluster("pi", workers=2)
    provisioning.answer(stage.fleet.workers["east"], _request(stage, running), "Failed", NO_NODES)
    wait(lambda: stage.running(2), 60, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == "2 west"
    told = stage.told("pi", "ReservationTimeout")
    assert check in told and NO_NODES in told
    assert not stage.remote("workloads")["east"] and not provisioning.requests(stage.fleet.workers["east"], stage.name)


def test_without_another_cluster_the_gang_waits_and_holds_nothing(stage: Stage, running: Controller) -> None:
    """It says why, and asks again later."""
    stage.clusters = ("east",)
    stage.build({"east": 2}, timeout="300s")
    check = provisioning.add_check(stage, "east", retries=0)
    stage.ray_cluster("pi", workers=2)
    east = stage.fleet.workers["east"]
    refused = _request(stage, running)
    provisioning.answer(east, refused, "Failed", NO_NODES)
    reason = wait(lambda: _idle_reason(stage), 60, "it waits and holds nothing", lambda: dump(stage, running))
    assert "refused a share: " in reason and check in reason and NO_NODES in reason

    # The refused one is deleted a moment after its share.
    (again,) = wait(lambda: _others(stage, refused), 60, "it asks again", lambda: dump(stage, running))
    provisioning.answer(east, again, "Provisioned", "")
    wait(lambda: stage.running(2), 60, "two workers run", lambda: dump(stage, running))


@pytest.mark.long
def test_a_slow_autoscaler_is_named_with_the_field_that_waits_for_it(stage: Stage, running: Controller) -> None:
    """The policy waits for five seconds only."""
    stage.build({"east": 2, "west": 2}, timeout="5s")
    check = provisioning.add_check(stage, "east", retries=0)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == "2 west"
    told = stage.told("pi", "ReservationTimeout")
    assert f"AdmissionCheck {check} there is Pending" in told
    assert "set spec.reservationTimeout of the DispatchPolicy to longer than the check takes" in told


@pytest.mark.long
def test_a_worker_that_a_job_grows_by_goes_where_there_are_nodes(stage: Stage, running: Controller) -> None:
    """The others stay, and no worker counts as lost."""
    stage.build({"east": 2, "west": 2}, timeout="300s")
    provisioning.add_check(stage, "east", retries=3)
    stage.ray_cluster("pi", workers=1, elastic=2)
    east, first = stage.fleet.workers["east"], _request(stage, running)
    provisioning.answer(east, first, "Provisioned", "")
    wait(lambda: stage.running(1), 90, "one worker runs", lambda: dump(stage, running))
    stage.scale("pi", 0, 2)
    second = wait(lambda: _others(stage, first), 60, "Kueue asks for one more", lambda: dump(stage, running))
    provisioning.answer(east, second[0], "Failed", NO_NODES)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == "1 east, 1 west"
    assert "ShareLost" not in stage.events("pi") and not _others(stage, first)


@pytest.mark.long
def test_workers_whose_nodes_are_revoked_go_elsewhere(stage: Stage, running: Controller) -> None:
    """Kueue of east stops them for good."""
    stage.build({"east": 2, "west": 2}, timeout="300s")
    provisioning.add_check(stage, "east", retries=0)
    stage.ray_cluster("pi", workers=2)
    east = stage.fleet.workers["east"]
    provisioning.answer(east, _request(stage, running), "Provisioned", "")
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    provisioning.answer(east, _request(stage, running), "CapacityRevoked", NO_NODES)
    wait(lambda: stage.where("pi") == "2 west", 90, "they have slots in west", lambda: dump(stage, running))
    wait(lambda: stage.running(2), 90, "two workers run in west", lambda: dump(stage, running))
    assert NO_NODES in stage.told("pi", "ShareLost")


def _idle_reason(stage: Stage) -> str:
    """What the gang says while it waits and no worker cluster holds anything of it."""
    status = stage.placement("pi").get("status") or {}
    is_idle = status.get("state") == PlacementState.WAITING and not stage.leftovers() and stage.reserving() == 0
    return str(status.get("reason")) if is_idle else ""


def _others(stage: Stage, first: Raw) -> list[Raw]:
    found = provisioning.requests(stage.fleet.workers["east"], stage.name)
    return [request for request in found if request["metadata"]["uid"] != first["metadata"]["uid"]]


def _why(stage: Stage) -> str:
    command = [sys.executable, "-m", "adapter", "why", "pi", "-n", stage.name, "-o", "json", "--kubeconfig"]
    done = subprocess.run([*command, stage.manager.kubeconfig], capture_output=True, text=True, check=False, cwd=REPO)
    return str(json.loads(done.stdout)["link"]["sentence"])


def _request(stage: Stage, running: Controller) -> Raw:
    """The only ProvisioningRequest in east, as soon as there is one."""
    east = stage.fleet.workers["east"]
    what = "Kueue asks for nodes"
    (request,) = wait(lambda: provisioning.requests(east, stage.name), 60, what, lambda: dump(stage, running))
    return dict(request)
