"""Checks a right in a cluster by a SubjectAccessReview, in milliseconds; `kubectl auth can-i` is a process each time.

A question is put in kubectl's words, so that either may be used: `create`, `pods/exec`, `-n default`.
"""

from collections.abc import Iterable
from typing import Final

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw

Row = tuple[str, str, str, bool]  # verb, resource (with a subresource or a name), more words for kubectl, allowed

SUBRESOURCES: Final = (
    "status",
    "attach",
    "exec",
    "log",
    "portforward",
    "proxy",
    "token",
)  # a name follows a slash in all other cases
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ACCOUNT: Final = "system:serviceaccount:"


def wrong(cluster: Cluster, who: str, rows: Iterable[Row]) -> list[str]:
    """List where the API server's answer is not the row's, each as a sentence."""
    asked = ((" ".join(filter(None, row[:3])), may(cluster, who, *row[:3]), row[3]) for row in rows)
    return [f"{who} {'may' if found else 'may not'} {words}" for words, found, wanted in asked if found is not wanted]


def may(cluster: Cluster, who: str, verb: str, resource: str, where: str) -> bool:
    """Whether a user may do it; a kind that the cluster does not know is an error, since no user could be denied it."""
    kind = resource.partition("/")[0]
    path, namespaced = cluster.reader.path(kind), cluster.reader.namespaced(kind)
    question = {"user": who, "groups": groups(who), "resourceAttributes": attributes(path, verb, resource, where)}
    if namespaced and not where:
        raise ValueError(f"{kind} are in namespaces: say -n or -A")
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": question}
    answer: Raw = cluster.reader.post(_REVIEWS, body)["status"]
    if answer.get("evaluationError"):
        raise ValueError(f"{who} {verb} {resource} {where}: {answer['evaluationError']}")
    return bool(answer["allowed"])


def attributes(path: str, verb: str, resource: str, where: str) -> Raw:
    """Say in a review's terms what kubectl would ask; `path` is where the objects of the kind are."""
    *_, group, _version, plural = path.split("/")
    part = resource.partition("/")[2]
    words = where.split()
    namespace = words[words.index("-n") + 1] if "-n" in words else ""
    given = [word.partition("=")[2] for word in words if word.startswith("--subresource=")]
    below = part if part in SUBRESOURCES else "".join(given)
    named = "" if part in SUBRESOURCES else part
    said = {"verb": verb, "group": "" if group == "api" else group, "resource": plural, "namespace": namespace}
    return {**said, **({"subresource": below} if below else {}), **({"name": named} if named else {})}


def groups(who: str) -> list[str]:
    """The groups that the API server adds to an authenticated user, and that an impersonation must name."""
    if not who.startswith(_ACCOUNT):
        return ["system:authenticated"]
    namespace = who.removeprefix(_ACCOUNT).partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
