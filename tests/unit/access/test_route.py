"""Which way does a request go that has a grant, and which sentence is said where it goes none?"""

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


def test_it_goes_where_the_pods_slot_is() -> None:
    assert route.target_cluster(ASKED, GRANT, pod()) == "east"


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        pytest.param(replace(ASKED, pod="worker-b"), pod(), "is for pod worker-a, not for worker-b", id="another pod"),
        pytest.param(replace(ASKED, namespace="x"), pod(), "is for pod worker-a", id="another namespace"),
        pytest.param(ASKED, None, "is not there any more", id="no pod"),
        pytest.param(ASKED, pod("u-2"), "is another one by now", id="a pod that replaced it"),
        pytest.param(ASKED, pod(slot=""), "has no place in a worker cluster; use kubectl itself", id="a pod of the manager's nodes"),
    ],
)  # fmt: skip
def test_who_has_a_grant_for_one_pod_comes_to_no_other(asked: AccessRequest, found: Raw | None, said: str) -> None:
    refusal = route.target_cluster(asked, GRANT, found)
    assert isinstance(refusal, ErrorStatus) and said in refusal.message


@pytest.mark.parametrize(
    "slot", ["../1/r/0", "east\n2026 log of pod b in west/1/r/0", "East/1/r/0", "e ast/1/r/0", f"{'e' * 254}/1/r/0"]
)
def test_what_no_cluster_can_be_called_is_asked_of_nobody_and_stands_in_no_log(slot: str) -> None:
    """A slot is an annotation, which whoever may write the pod may write."""
    refusal = route.target_cluster(ASKED, GRANT, pod(slot=slot))
    assert isinstance(refusal, ErrorStatus) and refusal.message.isprintable()
    assert refusal.message.startswith("Pod default/worker-a: annotation rayspan.dev/slot names a worker cluster ")
    assert refusal.message.endswith("which none can be called: let its controller make it anew.")


def test_who_asks_does_not_learn_whether_somebody_elses_pod_of_that_name_stands_there() -> None:
    none, foreign = (route.remote_pod_mismatch(GRANT, found, "m", "east") for found in (None, copy(manager="another")))
    assert none == foreign is not None


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        pytest.param(copy(), False, id="its copy"),
        pytest.param(None, True, id="none"),
        pytest.param(copy(manager="another"), True, id="another manager's"),
        pytest.param(copy(uid="u-2"), True, id="that of a pod that replaced it"),
        pytest.param({"metadata": {"name": "worker-a"}}, True, id="somebody's pod of that name"),
    ],
)
def test_only_the_copy_of_this_very_pod_is_reached(found: Raw | None, refused: bool) -> None:
    """A slot is an annotation, which whoever may write the pod may point to any cluster; the copy has the uid."""
    assert (route.remote_pod_mismatch(GRANT, found, "m", "east") is not None) is refused


@pytest.mark.parametrize("what", [LOG, EXEC, PORT_FORWARD])
@pytest.mark.parametrize("granted", [LOG, EXEC, PORT_FORWARD])
def test_a_grant_is_for_one_subresource(what: str, granted: str) -> None:
    refusal = route.subresource_mismatch(replace(ASKED, resource=what), replace(GRANT, subresource=granted))
    assert (refusal is None) == (what == granted)
    assert refusal is None or refusal.message == f"WorkerAccess kubectl-1 is for {granted}, not for {what}."


@pytest.mark.parametrize(
    ("container", "query", "said"),
    [
        pytest.param("", [("container", "ray"), ("follow", "true"), ("tailLines", "5")], "", id="what kubectl says"),
        pytest.param("ray", [("container", "ray")], "", id="the container that is granted"),
        pytest.param("ray", [("container", "side")], "is for container ray", id="another one"),
        pytest.param("ray", [], "is for container ray", id="any one"),
        pytest.param("", [("insecureSkipTLSVerifyBackend", "true")], "insecureSkipTLSVerifyBackend cannot be", id="a weaker link"),
        pytest.param("", [("follow", "true"), ("follow", "false")], "says something twice", id="twice"),
        pytest.param("", [("sinceTime", "9" * 300)], "sinceTime cannot be", id="too long"),
    ],
)  # fmt: skip
def test_which_log_may_be_asked_for(container: str, query: list[tuple[str, str]], said: str) -> None:
    found = route.log_query(replace(GRANT, container=container), query)
    if said:
        assert isinstance(found, ErrorStatus) and said in found.message
    else:
        assert found == tuple(query)


def test_a_commands_query_is_the_grants_alone() -> None:
    words = [("command", "sh"), ("command", "-c"), ("command", "a b; c")]
    begun = [("container", "ray"), *words, ("stdin", "true"), ("stdout", "true")]
    assert [*route.stream_query(COMMAND)] == [*begun, ("stderr", "true")]
    assert [*route.stream_query(replace(COMMAND, tty=True))] == [*begun, ("tty", "true")], "a terminal has one output"
    assert route.stream_query(replace(GRANT, subresource=PORT_FORWARD)) == ()


@pytest.mark.parametrize(
    ("granted", "offered", "wanted"),
    [
        pytest.param(EXEC, ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"], ["v5.channel.k8s.io", "v4.channel.k8s.io"], id="kubectl's"),
        pytest.param(EXEC, ["base64url.bearer.authorization.k8s.io.c2VjcmV0", "v5.channel.k8s.io"], ["v5.channel.k8s.io"], id="a token"),
        pytest.param(PORT_FORWARD, ["SPDY/3.1+portforward.k8s.io"], ["SPDY/3.1+portforward.k8s.io"], id="ports"),
        pytest.param(PORT_FORWARD, ["v5.channel.k8s.io"], [], id="those of commands"),
        pytest.param(EXEC, [], [], id="none"),
    ],
)  # fmt: skip
def test_which_protocols_are_passed_on(granted: str, offered: list[str], wanted: list[str]) -> None:
    assert route.accepted_protocols(replace(GRANT, subresource=granted), offered) == wanted


def test_who_lacks_a_right_over_there_is_told_who_gives_it_and_how() -> None:
    logs, commands = (route.worker_error("east", one, 403).message for one in (GRANT, COMMAND))
    assert "east does not let the manager have pods/log in namespace default." in logs
    assert f"--clusterrole={names.LOGS_ROLE} " in logs and f"--clusterrole={names.EXEC_ROLE} " in commands
    assert "rayspan-system:rayspan-worker" in logs


@pytest.mark.parametrize(
    ("status", "said", "wanted"),
    [
        (401, "", "east does not know the manager any more"),
        (400, "container ray is waiting to start", "east: container ray is waiting to start"),
        (204, "", "east: pod worker-a has no node yet"),
        (404, "", "east: there is no such container, or it has not started"),
        (503, "<html>", "east answered 503."),
    ],
)
def test_other_refusals_are_told_too(status: int, said: str, wanted: str) -> None:
    assert route.worker_error("east", GRANT, status, said).message.startswith(wanted)
