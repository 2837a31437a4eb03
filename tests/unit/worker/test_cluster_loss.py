"""When workers in a cluster out of sight count as lost: by the first loss that was noted, and after Ray was asked."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapter.names import ReasonCode
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw
from adapter.worker.cluster_loss import ClusterLoss, given_up_clusters, loss_of_cluster, loss_of_pod
from tests.unit.builders import at, make_condition, make_pod, make_worker_cluster, stamp

MINUTE = timedelta(minutes=1)
EAST = make_worker_cluster()
LOST = {**EAST, "status": {"lostSince": stamp()}}
SINCE = ClusterLoss("cannot be seen since 03:04:05 UTC", at(0), at(60))
NOT_YET = ClusterLoss("cannot be seen", None, None)
POD: Raw = {**make_pod(), "status": {"podIP": "10.0.0.1"}}


def unreachable(text: str | None, syncing: bool) -> Reason | None:
    """Why a cluster cannot be observed; `syncing`: this process has only begun to read it."""
    code = ReasonCode.CLUSTER_SYNCING if syncing else ReasonCode.CLUSTER_UNREACHABLE
    return None if text is None else Reason(code, text)


@pytest.mark.parametrize(
    ("cluster", "why", "begun", "want"),
    [
        pytest.param(EAST, None, False, None, id="it is seen"),
        pytest.param(LOST, None, False, None, id="it is seen again, though not for long"),
        pytest.param(LOST, "no answer", False, SINCE, id="from the first loss on"),
        pytest.param(EAST, "no answer", False, NOT_YET, id="the loss is not noted yet"),
        pytest.param(
            {**EAST, "status": {**LOST["status"], "conditions": [make_condition("Connected")]}},
            "no answer",
            False,
            NOT_YET,
            id="what is told is of a loss before",
        ),
        pytest.param({**EAST, "status": {"lostSince": "soon"}}, "no answer", False, NOT_YET, id="or not to be read"),
        pytest.param(LOST, "no answer", True, NOT_YET, id="it may have come back while nobody looked"),
    ],
)
def test_what_is_to_be_thought_of_a_cluster(
    cluster: Raw, why: str | None, begun: bool, want: ClusterLoss | None
) -> None:
    assert loss_of_cluster(cluster, unreachable(why, begun), timeout=MINUTE) == want


@pytest.mark.parametrize("why", [None, "no answer"])
def test_a_cluster_that_is_not_registered_any_more_is_lost_at_once(why: str | None) -> None:
    found = loss_of_cluster(None, unreachable(why, True), timeout=MINUTE)
    assert given_up_clusters({"north": found}, at(0)) == {"north": "the worker cluster is not registered any more"}


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(None, replace(SINCE, given_up_at=None), id="nobody is given up before Ray was asked"),
        pytest.param({}, SINCE, id="it could not be asked, or does not know"),
        pytest.param({"10.0.0.2": True}, SINCE, id="it knows others"),
        pytest.param({"10.0.0.1": True}, replace(SINCE, ray_node_alive=True), id="it hears from the node"),
        pytest.param({"10.0.0.1": False}, replace(SINCE, ray_node_alive=False), id="it lost the node"),
    ],
)
def test_what_is_to_be_thought_of_a_pod(nodes: dict[str, bool] | None, want: ClusterLoss) -> None:
    assert loss_of_pod(SINCE, POD, nodes) == want
    assert loss_of_pod(None, POD, nodes) is None, "while its cluster is seen"


def test_that_the_head_cannot_be_asked_goes_with_it() -> None:
    assert loss_of_pod(SINCE, POD, {}, "No token.") == replace(SINCE, head_problem="No token.")


def test_a_pod_in_a_cluster_that_is_gone_waits_for_no_answer() -> None:
    found = loss_of_cluster(None, None, timeout=MINUTE)
    assert found and loss_of_pod(found, POD, None) == found


@pytest.mark.parametrize(("seconds", "late"), [(59, set()), (60, {"east"}), (9999, {"east"})])
def test_who_is_given_up(seconds: float, late: set[str]) -> None:
    found = given_up_clusters({"east": SINCE, "west": None, "north": NOT_YET}, at(seconds))
    assert found.keys() == late
    assert all(why == "the worker cluster cannot be seen since 03:04:05 UTC" for why in found.values())
