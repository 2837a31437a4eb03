"""Routes a granted request to a remote pod, or gives the sentence why it goes nowhere."""

from dataclasses import replace

import pytest

from adapter import names
from adapter.access import route
from adapter.access.access_request import AccessRequest
from adapter.access.grant import EXEC, LOG, PORT_FORWARD, Grant
from adapter.access.route import ErrorStatus
from adapter.objects.unstructured import Raw
from tests.unit.access.test_grant import NOW

GRANT = Grant("default", "kubectl-1", "g", "worker-a", "u-1", LOG, "", (), False, False, "", NOW)
COMMAND = replace(GRANT, subresource=EXEC, container="ray", command=("sh", "-c", "a b; c"), stdin=True)
ASKED = AccessRequest("default", "kubectl-1", "k", LOG, "worker-a")


def pod(uid: str = "u-1", slot: str = "east/1/role/0") -> Raw:
    annotations = {names.SLOT_ANNOTATION: slot} if slot else {}
    return {"metadata": {"namespace": "default", "name": "worker-a", "uid": uid, "annotations": annotations}}


def copy(manager: str = "m", uid: str = "u-1") -> Raw:
    return {"metadata": {"name": "worker-a", "labels": {names.MANAGER_LABEL: manager, names.POD_UID_LABEL: uid}}}


def test_the_target_is_the_cluster_of_the_pods_slot() -> None:
    assert route.target_cluster(ASKED, GRANT, pod()) == "east"


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        pytest.param(
            replace(ASKED, pod="worker-b"), pod(), "is for pod worker-a, not for worker-b",
            id="a grant for another pod",
        ),
        pytest.param(replace(ASKED, namespace="x"), pod(), "is for pod worker-a", id="a grant in another namespace"),
        pytest.param(ASKED, None, "does not exist any more", id="a pod that does not exist"),
        pytest.param(ASKED, pod("u-2"), "was replaced", id="a pod that replaced it"),
        pytest.param(
            ASKED, pod(slot=""), "is not placed in a worker cluster; use kubectl itself",
            id="a pod of the manager's nodes",
        ),
    ],
)  # fmt: skip
def test_a_grant_for_one_pod_reaches_no_other(asked: AccessRequest, found: Raw | None, said: str) -> None:
    refusal = route.target_cluster(asked, GRANT, found)
    assert isinstance(refusal, ErrorStatus) and said in refusal.message


@pytest.mark.parametrize(
    "slot", ["../1/r/0", "east\n2026 log of pod b in west/1/r/0", "East/1/r/0", "e ast/1/r/0", f"{'e' * 254}/1/r/0"]
)
def test_an_invalid_cluster_name_is_neither_used_nor_logged(slot: str) -> None:
    """A slot is an annotation: everybody who may write the pod may forge it."""
    refusal = route.target_cluster(ASKED, GRANT, pod(slot=slot))
    assert isinstance(refusal, ErrorStatus) and refusal.message.isprintable()
    assert refusal.message.startswith("Pod default/worker-a: annotation rayspan.dev/slot is ")
    assert refusal.message.endswith(
        "which is not a valid slot: delete the pod, so that its controller creates it again."
    )


def test_the_answer_does_not_reveal_pods_of_others() -> None:
    none, foreign = (route.remote_pod_mismatch(GRANT, found, "m", "east") for found in (None, copy(manager="another")))
    assert none == foreign is not None


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        pytest.param(copy(), False, id="the remote pod of this pod"),
        pytest.param(None, True, id="no remote pod"),
        pytest.param(copy(manager="another"), True, id="the remote pod of another manager"),
        pytest.param(copy(uid="u-2"), True, id="the remote pod of the pod's replacement"),
        pytest.param({"metadata": {"name": "worker-a"}}, True, id="a foreign pod of that name"),
    ],
)
def test_only_the_remote_pod_of_this_pod_is_reached(found: Raw | None, refused: bool) -> None:
    """Everybody who may write the pod may point its slot to any cluster; the remote pod has the uid."""
    assert (route.remote_pod_mismatch(GRANT, found, "m", "east") is not None) is refused


def test_any_pod_with_the_labels_of_a_remote_pod_is_taken_for_it() -> None:
    """SECURITY.md, "A tenant of a worker cluster": who may create pods in the namespace there can write the labels."""
    labels = {names.MANAGER_LABEL: "m", names.POD_UID_LABEL: GRANT.pod_uid}
    forged = {"metadata": {"name": "worker-a", "uid": "of-another-pod", "labels": labels}}
    assert route.remote_pod_mismatch(GRANT, forged, "m", "east") is None


@pytest.mark.parametrize("what", [LOG, EXEC, PORT_FORWARD])
@pytest.mark.parametrize("granted", [LOG, EXEC, PORT_FORWARD])
def test_a_grant_is_for_one_subresource(what: str, granted: str) -> None:
    refusal = route.subresource_mismatch(replace(ASKED, resource=what), replace(GRANT, subresource=granted))
    assert (refusal is None) == (what == granted)
    assert refusal is None or refusal.message == f"WorkerAccess kubectl-1 is for {granted}, not for {what}."


@pytest.mark.parametrize(
    ("container", "query", "said"),
    [
        pytest.param("", [("container", "ray"), ("follow", "true"), ("tailLines", "5")], "", id="kubectl's own query"),
        pytest.param("ray", [("container", "ray")], "", id="the container of the grant"),
        pytest.param(
            "ray", [("container", "side")], "is for container ray", id="another container than that of the grant",
        ),
        pytest.param("ray", [], "is for container ray", id="no container, and the grant names one"),
        pytest.param(
            "", [("insecureSkipTLSVerifyBackend", "true")], "insecureSkipTLSVerifyBackend cannot be",
            id="a connection without TLS verification",
        ),
        pytest.param("", [("follow", "true"), ("follow", "false")], "has a parameter twice", id="one parameter twice"),
        pytest.param("", [("sinceTime", "9" * 300)], "sinceTime cannot be", id="a value that is too long"),
    ],
)  # fmt: skip
def test_the_query_of_a_log(container: str, query: list[tuple[str, str]], said: str) -> None:
    found = route.log_query(replace(GRANT, container=container), query)
    if said:
        assert isinstance(found, ErrorStatus) and said in found.message
    else:
        assert found == tuple(query)


def test_the_query_of_a_command_comes_from_the_grant_alone() -> None:
    words = [("command", "sh"), ("command", "-c"), ("command", "a b; c")]
    begun = [("container", "ray"), *words, ("stdin", "true"), ("stdout", "true")]
    assert [*route.stream_query(COMMAND)] == [*begun, ("stderr", "true")]
    assert [*route.stream_query(replace(COMMAND, tty=True))] == [*begun, ("tty", "true")], "a terminal has one output"
    assert route.stream_query(replace(GRANT, subresource=PORT_FORWARD)) == ()


@pytest.mark.parametrize(
    ("granted", "offered", "wanted"),
    [
        pytest.param(
            EXEC, ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"],
            ["v5.channel.k8s.io", "v4.channel.k8s.io"], id="kubectl's protocols",
        ),
        pytest.param(
            EXEC, ["base64url.bearer.authorization.k8s.io.c2VjcmV0", "v5.channel.k8s.io"], ["v5.channel.k8s.io"],
            id="a token among the protocols",
        ),
        pytest.param(
            PORT_FORWARD, ["SPDY/3.1+portforward.k8s.io"], ["SPDY/3.1+portforward.k8s.io"],
            id="the protocol of port-forward",
        ),
        pytest.param(PORT_FORWARD, ["v5.channel.k8s.io"], [], id="a protocol of commands for port-forward"),
        pytest.param(EXEC, [], [], id="no protocols"),
    ],
)  # fmt: skip
def test_accepted_protocols(granted: str, offered: list[str], wanted: list[str]) -> None:
    assert route.accepted_protocols(replace(GRANT, subresource=granted), offered) == wanted


def test_a_missing_right_in_the_worker_cluster_names_the_remedy() -> None:
    logs, commands = (route.worker_error("east", one, 403).message for one in (GRANT, COMMAND))
    assert "east does not allow the manager to use pods/log in namespace default." in logs
    assert f"--clusterrole={names.LOGS_ROLE} " in logs and f"--clusterrole={names.EXEC_ROLE} " in commands
    assert "rayspan-system:rayspan-worker" in logs


@pytest.mark.parametrize(
    ("status", "said", "wanted"),
    [
        (401, "", "east does not accept the manager's credentials any more"),
        (400, "container ray is waiting to start", "east: container ray is waiting to start"),
        (204, "", "east: pod worker-a has no node yet"),
        (404, "", "east: there is no such container, or it has not started"),
        (503, "<html>", "east answered 503."),
    ],
)
def test_other_errors_are_passed_on(status: int, said: str, wanted: str) -> None:
    assert route.worker_error("east", GRANT, status, said).message.startswith(wanted)
