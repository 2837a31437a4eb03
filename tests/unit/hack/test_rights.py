"""A right is checked as kubectl checks it, for the logged-in user; a wrong answer is one sentence."""

from pathlib import Path

import pytest

from hack.testbed import rights
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw, Reader

ACCOUNT = "system:serviceaccount:rayspan-system:rayspan-controller"
PODS, ROLES = "/api/v1/pods", "/apis/rbac.authorization.k8s.io/v1/clusterroles"
SERVICES = "/api/v1/services"

QUESTIONS: list[tuple[str, str, str, str, Raw]] = [
    (PODS, "list", "pods", "-A", {"group": "", "resource": "pods", "namespace": ""}),
    (PODS, "get", "pods/log", "-n a", {"group": "", "resource": "pods", "namespace": "a", "subresource": "log"}),
    (PODS, "get", "pods/any", "-n a", {"group": "", "resource": "pods", "namespace": "a", "name": "any"}),
    (
        ROLES, "escalate", "clusterroles", "",
        {"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "namespace": ""},
    ),
    (SERVICES, "create", "services/plan:http", "-n a --subresource=proxy", {
        "group": "", "resource": "services", "namespace": "a", "subresource": "proxy", "name": "plan:http"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "verb", "resource", "where", "want"), QUESTIONS)
def test_kubectls_words_become_a_review(path: str, verb: str, resource: str, where: str, want: Raw) -> None:
    assert rights.attributes(path, verb, resource, where) == {"verb": verb, **want}


@pytest.mark.parametrize(
    ("who", "want"),
    [
        ("ann", ["system:authenticated"]),
        (ACCOUNT, ["system:serviceaccounts", "system:serviceaccounts:rayspan-system", "system:authenticated"]),
    ],
)
def test_a_user_is_in_the_groups_of_every_login(who: str, want: list[str]) -> None:
    assert rights.groups(who) == want


class Answering(Reader):
    """An API server that permits everybody to read, and records the reviews."""

    def __init__(self, error: str = "") -> None:
        self._error = error
        self.asked: list[Raw] = []

    def path(self, kind: str, name: str | None = None, namespace: str | None = None) -> str:
        return f"/api/v1/{kind}"

    def namespaced(self, kind: str) -> bool:
        return kind != "nodes"

    def post(self, path: str, question: Raw) -> Raw:
        self.asked.append(question)
        allowed = question["spec"]["resourceAttributes"]["verb"] == "get"
        return {"status": {"allowed": allowed, "evaluationError": self._error}}


def cluster(reader: Reader) -> Cluster:
    made = Cluster("east", Path("nowhere"))
    made.__dict__["reader"] = reader  # the value of its cached property
    return made


def test_each_wrong_answer_and_no_other_is_a_sentence() -> None:
    server = Answering()
    rows = [("get", "nodes", "", True), ("get", "pods", "-A", False), ("patch", "pods", "-n a", True)]
    assert rights.wrong(cluster(server), "ann", rows) == ["ann may get pods -A", "ann may not patch pods -n a"]
    assert [asked["spec"]["user"] for asked in server.asked] == ["ann"] * 3


def test_a_review_without_a_namespace_or_with_an_evaluation_error_is_an_error() -> None:
    with pytest.raises(ValueError, match="say -n or -A"):
        rights.may(cluster(Answering()), "ann", "get", "pods", "")
    with pytest.raises(ValueError, match="no such role"):
        rights.may(cluster(Answering("no such role")), "ann", "get", "nodes", "")
