"""A right is asked for as kubectl would ask for it, by whoever is logged in, and a wrong answer is told as a sentence."""

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
    (ROLES, "escalate", "clusterroles", "", {"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "namespace": ""}),
    (SERVICES, "create", "services/plan:http", "-n a --subresource=proxy", {
        "group": "", "resource": "services", "namespace": "a", "subresource": "proxy", "name": "plan:http"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "verb", "resource", "where", "want"), QUESTIONS)
def test_kubectls_words_become_a_reviews(path: str, verb: str, resource: str, where: str, want: Raw) -> None:
    assert rights.attributes(path, verb, resource, where) == {"verb": verb, **want}


@pytest.mark.parametrize(
    ("who", "want"),
    [
        ("ann", ["system:authenticated"]),
        (ACCOUNT, ["system:serviceaccounts", "system:serviceaccounts:rayspan-system", "system:authenticated"]),
    ],
)
def test_somebody_is_in_the_groups_of_whoever_is_logged_in(who: str, want: list[str]) -> None:
    assert rights.groups(who) == want


class Answering(Reader):
    """An API server that lets everybody read, and remembers what it was asked."""

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
    made.__dict__["reader"] = reader  # what its cached property holds
    return made


def test_each_wrong_answer_is_a_sentence_and_the_others_are_not() -> None:
    server = Answering()
    rows = [("get", "nodes", "", True), ("get", "pods", "-A", False), ("patch", "pods", "-n a", True)]
    assert rights.wrong(cluster(server), "ann", rows) == ["ann may get pods -A", "ann may not patch pods -n a"]
    assert [asked["spec"]["user"] for asked in server.asked] == ["ann"] * 3


def test_a_question_that_says_no_namespace_or_that_the_server_could_not_judge_is_no_answer() -> None:
    with pytest.raises(ValueError, match="say -n or -A"):
        rights.may(cluster(Answering()), "ann", "get", "pods", "")
    with pytest.raises(ValueError, match="no such role"):
        rights.may(cluster(Answering("no such role")), "ann", "get", "nodes", "")
