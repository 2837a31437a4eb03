"""A worker cluster is reached only if it is the one on record, and commands run there only with the claim."""

import pytest

from adapter import names
from adapter.access import cluster_check
from adapter.objects.unstructured import Raw

IDENTITY = "0123456789"


def worker_cluster(*, uid: str = "first", reason: str = "Connected", status: str = "True", accepted: str = "") -> Raw:
    annotations = {names.ACCEPT_CLUSTER_ANNOTATION: accepted} if accepted else {}
    connected = {"type": "Connected", "status": status, "reason": reason, "message": "as the controller says"}
    return {
        "metadata": {"name": "east", "annotations": annotations},
        "status": {"clusterUID": uid, "conditions": [connected]},
    }


def lease(holder: str) -> Raw:
    return {"metadata": {"name": "a"}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("status", "reason", "acts", "refused"),
    [
        pytest.param("True", "Connected", True, False, id="a connected cluster"),
        pytest.param("False", "Unreachable", True, False, id="the controller does not reach it, the user may"),
        pytest.param("False", "IdentityMismatch", False, True, id="a log of another cluster"),
        pytest.param("False", "DuplicateCluster", False, True, id="a log of a cluster that is registered twice"),
        pytest.param("False", "ClaimConflict", False, False, id="a log without the claim"),
        pytest.param("False", "ClaimConflict", True, True, id="a command without the claim"),
    ],
)
def test_a_cluster_that_the_controller_does_not_use_is_not_reached(
    status: str, reason: str, acts: bool, refused: bool
) -> None:
    problem = cluster_check.record_problem(worker_cluster(status=status, reason=reason), acts=acts)
    assert problem == refused * (
        f"condition Connected of WorkerCluster east is {reason}, so an administrator of the manager must correct it "
        "first; its message says how"
    )


@pytest.mark.parametrize(
    ("recorded", "accepted", "uid", "said"),
    [
        pytest.param("first", "", "first", "", id="the cluster on record"),
        pytest.param("first", "second", "second", "", id="a replacement that the administrator accepted"),
        pytest.param("first", "", "second", "its kubeconfig leads to a different cluster", id="another cluster"),
        pytest.param("first", "", "", "it shows no namespace kube-system", id="a cluster without an identity"),
        pytest.param("", "", "first", "status.clusterUID of WorkerCluster east is empty", id="no cluster on record"),
    ],
)
def test_only_the_cluster_on_record_is_reached(recorded: str, accepted: str, uid: str, said: str) -> None:
    problem = cluster_check.identity_problem(worker_cluster(uid=recorded, accepted=accepted), uid)
    assert problem.startswith(said) and bool(problem) is bool(said)


@pytest.mark.parametrize(
    ("claim", "leader", "said"),
    [
        pytest.param(lease("a-1"), lease("a-1"), "", id="this manager's leader has it"),
        pytest.param(None, lease("a-1"), "", id="there is no claim"),
        pytest.param(lease(""), lease("a-1"), "", id="the claim was given back"),
        pytest.param(
            lease("b-1"), lease("a-1"), "is held by b-1, and the controller of this manager is a-1",
            id="this manager is a clone",
        ),
        pytest.param(lease("b-1"), None, "", id="no controller runs in this manager"),
        pytest.param(lease("b-1"), lease(""), "", id="the controller of this manager has just stopped"),
        pytest.param(lease("b\n\x1b"), lease("a-1"), "is held by b\ufffd\ufffd, and", id="control characters"),
    ],
)  # fmt: skip
def test_a_command_runs_only_where_this_manager_has_the_claim(claim: Raw | None, leader: Raw | None, said: str) -> None:
    problem = cluster_check.claim_problem(IDENTITY, "east", claim, leader)
    assert said in problem and bool(problem) is bool(said)
    assert not problem or "Lease rayspan-0123456789-east in its namespace rayspan-system" in problem
