"""When workers in an unreachable cluster count as lost: by the recorded loss, and by Ray's answer."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapter.names import ReasonCode
from adapter.objects.reason import Reason
from adapter.objects.unstructured import Raw, key_of
from adapter.worker.cluster_loss import ClusterLoss, given_up_clusters, loss_of_cluster, loss_of_pod
from tests.unit.builders import at, make_condition, make_pod, make_worker_cluster, stamp

MINUTE = timedelta(minutes=1)
EAST = make_worker_cluster()
LOST = {**EAST, "status": {"lostSince": stamp()}}
SINCE = ClusterLoss("is unreachable since 03:04:05 UTC", at(0), at(60))
NOT_YET = ClusterLoss("is unreachable", None, None)
POD: Raw = {**make_pod(), "status": {"podIP": "10.0.0.1"}}


def unreachable(text: str | None, syncing: bool) -> Reason | None:
    """Why a cluster cannot be observed; `syncing`: this process has not listed it completely."""
    code = ReasonCode.CLUSTER_SYNCING if syncing else ReasonCode.CLUSTER_UNREACHABLE
    return None if text is None else Reason(code, text)


@pytest.mark.parametrize(
    ("cluster", "text", "syncing", "want"),
    [
        pytest.param(EAST, None, False, None, id="reachable"),
        pytest.param(LOST, None, False, None, id="reachable again for a short time"),
        pytest.param(LOST, "no answer", False, SINCE, id="unreachable since the recorded loss"),
        pytest.param(EAST, "no answer", False, NOT_YET, id="the loss is not recorded yet"),
        pytest.param(
            {**EAST, "status": {**LOST["status"], "conditions": [make_condition("Connected")]}},
            "no answer",
            False,
            NOT_YET,
            id="the recorded loss is an earlier one",
        ),
        pytest.param(
            {**EAST, "status": {"lostSince": "soon"}}, "no answer", False, NOT_YET, id="the recorded time is invalid"
        ),
        pytest.param(
            LOST, "no answer", True, NOT_YET, id="still syncing, the cluster may have been reachable meanwhile"
        ),
    ],
)
def test_loss_of_cluster(cluster: Raw, text: str | None, syncing: bool, want: ClusterLoss | None) -> None:
    assert loss_of_cluster(cluster, unreachable(text, syncing), timeout=MINUTE) == want


@pytest.mark.parametrize("text", [None, "no answer"])
def test_an_unregistered_cluster_is_lost_at_once(text: str | None) -> None:
    loss = loss_of_cluster(None, unreachable(text, True), timeout=MINUTE)
    assert given_up_clusters({"north": loss}, at(0)) == {"north": "the worker cluster is not registered any more"}


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(None, replace(SINCE, given_up_at=None), id="Ray was not asked yet"),
        pytest.param({}, SINCE, id="Ray knows no node"),
        pytest.param({"another": True}, SINCE, id="Ray knows other nodes"),
        pytest.param({key_of(POD)[1]: True}, replace(SINCE, ray_node_alive=True), id="the Ray node is alive"),
        pytest.param({key_of(POD)[1]: False}, replace(SINCE, ray_node_alive=False), id="the Ray node is dead"),
    ],
)
def test_loss_of_pod(nodes: dict[str, bool] | None, want: ClusterLoss) -> None:
    assert loss_of_pod(SINCE, POD, nodes) == want
    assert loss_of_pod(None, POD, nodes) is None, "while its cluster is reachable"


def test_the_loss_of_a_pod_includes_the_problem_of_its_head() -> None:
    assert loss_of_pod(SINCE, POD, {}, "No token.") == replace(SINCE, head_problem="No token.")


def test_a_pod_in_an_unregistered_cluster_waits_for_no_answer() -> None:
    loss = loss_of_cluster(None, None, timeout=MINUTE)
    assert loss and loss_of_pod(loss, POD, None) == loss


@pytest.mark.parametrize(("seconds", "clusters"), [(59, set()), (60, {"east"}), (9999, {"east"})])
def test_clusters_are_given_up_after_the_timeout(seconds: float, clusters: set[str]) -> None:
    messages = given_up_clusters({"east": SINCE, "west": None, "north": NOT_YET}, at(seconds))
    assert messages.keys() == clusters
    assert all(text == "the worker cluster is unreachable since 03:04:05 UTC" for text in messages.values())
