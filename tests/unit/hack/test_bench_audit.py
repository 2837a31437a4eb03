"""Counts each request of an audit log once, by client and kind; the lines are from the lab's API servers."""

import json
import os
from pathlib import Path

import pytest

from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.progress import LabError
from hack.testbed import audit
from hack.testbed.audit import Kind, Log, Request


def recorded(
    user: str, verb: str, resource: str = "pods", *, sub: str = "", namespace: str = "demo", code: int = 200,
    agent: str = "rayspan/0.1.0", stage: str = "ResponseComplete",
) -> str:  # fmt: skip
    """A line as kube-apiserver 1.36.3 wrote it at level Metadata, with the fields that differ between lines."""
    about: Raw = {"resource": resource, "namespace": namespace, "name": "pi-worker-6pddq", "apiVersion": "v1"}
    return json.dumps({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "3b1f36c6-0479-49d1-97b6-44e4224b2172",
        "stage": stage,
        "requestURI": "/api/v1/namespaces/demo/pods/pi-worker-6pddq",
        "verb": verb,
        "user": {"username": user, "groups": ["system:authenticated"]},
        "sourceIPs": ["10.240.10.5"],
        "userAgent": agent,
        "objectRef": about | ({"subresource": sub} if sub else {}),
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": "2026-11-21T09:24:34.832374Z",
        "stageTimestamp": "2026-11-21T09:24:34.965280Z",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    })  # fmt: skip


OURS = "system:serviceaccount:rayspan-system:rayspan-controller"
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(
            recorded(OURS, "patch", sub="status"),
            Request(Kind("rayspan-controller", "patch", "pods/status"), "demo", 200),
            id="a service account counts by name, a subresource as a kind",
        ),
        pytest.param(
            recorded(KUEUE, "patch", "workloads", sub="status", code=409, agent="kueue/v0.19.2 (linux/amd64) abcd012"),
            Request(Kind("kueue-controller-manager", "patch", "workloads/status"), "demo", 409),
            id="a rejected request counts",
        ),
        pytest.param(
            recorded("lab-admin-mgr", "patch", agent="kwok/v0.8.0 (linux/amd64)"),
            Request(Kind("kwok", "patch", "pods"), "demo", 200),
            id="the admin's requests count by program",
        ),
        pytest.param(
            recorded("lab-admin-mgr", "get", agent=""),
            Request(Kind("lab-admin-mgr", "get", "pods"), "demo", 200),
            id="a program without a name counts by its user",
        ),
        pytest.param(
            recorded(OURS, "watch", stage="ResponseStarted"),
            Request(Kind("rayspan-controller", "watch", "pods"), "demo", 200),
            id="a watch counts when it begins",
        ),
        pytest.param(recorded(OURS, "watch"), None, id="a watch does not count again when it ends"),
        pytest.param(recorded(OURS, "get", stage="RequestReceived"), None, id="a request counts when it is answered"),
        pytest.param(recorded(OURS, "get")[:200], None, id="an incomplete line"),
        pytest.param("{}", None, id="a line of another format"),
    ],
)
def test_a_line_is_read(line: str, want: Request | None) -> None:
    assert audit.read(line) == want


def test_the_time_of_a_request_is_that_of_its_answer() -> None:
    request = audit.read(recorded(OURS, "get"))
    assert request is not None and request.at == "2026-11-21T09:24:34.965280Z"


def test_a_request_about_no_object_is_read() -> None:
    line = json.loads(recorded("lab-admin-mgr", "get", agent="kubectl/v0.0.0"))
    del line["objectRef"], line["responseStatus"]
    assert audit.read(json.dumps(line)) == Request(Kind("kubectl", "get", "-"), "", 0)


def test_only_one_namespace_is_counted_without_the_bench_itself() -> None:
    lines = (
        recorded(OURS, "patch", sub="status"),
        recorded(OURS, "patch", sub="status"),
        recorded(KUEUE, "patch", "workloads"),
        recorded(OURS, "patch", sub="status", namespace="of-others"),
        recorded("lab-admin-mgr", "list", agent="kubectl/v0.0.0"),
    )
    found = [request for request in map(audit.read, lines) if request]
    assert audit.count(audit.about(found, "demo", without=["kubectl"])) == {
        Kind("rayspan-controller", "patch", "pods/status"): 2,
        Kind("kueue-controller-manager", "patch", "workloads"): 1,
    }


def test_a_log_returns_the_lines_since_the_last_read(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text(recorded(OURS, "get") + "\n")
    log = Log(file)
    assert log.take() == [], "what was before is not counted"

    half = recorded(OURS, "create") + "\n"
    with file.open("a") as more:
        more.write(recorded(OURS, "patch") + "\n" + half[:100])
    assert [request.kind.verb for request in log.take()] == ["patch"]
    with file.open("a") as more:
        more.write(half[100:])
    assert [request.kind.verb for request in log.take()] == ["create"], "the half line is read when it is whole"


def test_a_rotated_log_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text("")
    log = Log(file)
    os.replace(file, tmp_path / "audit-1.log")
    file.write_text(recorded(OURS, "get") + "\n")
    with pytest.raises(LabError, match="rotated"):
        log.take()
