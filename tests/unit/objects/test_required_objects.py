"""What a pod needs of its worker cluster, and what an administrator can write to name it."""

from typing import Any

import pytest
import yaml

from adapter.objects.required_objects import (
    RequiredKind,
    RequiredObject,
    naming_line,
    required_objects,
    unnamed_objects,
    unnamed_reason,
)
from adapter.objects.specs import PodMapping, parse_worker_cluster
from adapter.objects.unstructured import Raw
from tests.unit.builders import make_worker_cluster

TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "sts", "path": "t"}}]}}
CLAIM = {"name": "d", "persistentVolumeClaim": {"claimName": "models"}}
HOST = {"name": "h", "hostPath": {"path": "/models"}}
NAMED_ALL = {
    "serviceAccounts": [{"name": "raydata", "namespaces": ["demo"]}],
    "persistentVolumeClaims": [{"name": "models", "namespaces": ["demo"]}],
    "hostPaths": [{"prefix": "/models", "namespaces": ["demo"]}],
}
ALL = {"serviceAccountName": "raydata", "volumes": [TOKEN, CLAIM, HOST]}


def mapping(**pods: Any) -> PodMapping:
    return parse_worker_cluster(make_worker_cluster(pods=pods)).pods


def unnamed(spec: Raw, pods: Raw, namespace: str = "demo") -> list[str]:
    return [needed.field for needed in unnamed_objects(required_objects(spec), mapping(**pods), namespace)]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"serviceAccountName": "default", "serviceAccount": "default"}, [], id="the default account"),
        pytest.param({"serviceAccount": "ray"}, ["spec.serviceAccount"], id="the older field"),
        pytest.param(
            {"serviceAccountName": "a", "serviceAccount": "b"}, ["spec.serviceAccountName"],
            id="the API server reads the newer field",
        ),
        pytest.param({"runtimeClassName": "kata"}, [], id="a RuntimeClass, of which a list may name some"),
        pytest.param({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
            ["spec.resourceClaims[gpu].resourceClaimTemplateName"], id="a ResourceClaimTemplate"),
        pytest.param({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}, [],
            id="a claim that exists, which no one can name"),
        pytest.param({"volumes": [TOKEN]}, [], id="a token of the default account, which no one can name"),
        pytest.param({"volumes": [{"name": "e", "emptyDir": {}}]}, [], id="a volume of its own"),
        pytest.param(
            ALL,
            [
                "spec.serviceAccountName", "spec.volumes[t].projected", "spec.volumes[d].persistentVolumeClaim",
                "spec.volumes[h].hostPath",
            ],
            id="all kinds",
        ),
    ],
)  # fmt: skip
def test_a_pod_needs_what_it_names(spec: Raw, want: list[str]) -> None:
    assert [needed.field for needed in required_objects(spec) if needed.kind != "runtimeClass"] == want
    assert unnamed(spec, {}) == want, "a WorkerCluster that names nothing gives nothing"


def test_all_that_is_named_is_given_in_its_namespace_alone() -> None:
    assert unnamed(ALL, NAMED_ALL) == []
    assert unnamed(ALL, NAMED_ALL, "other") == [needed.field for needed in required_objects(ALL)]


def test_the_account_that_replaces_others_gives_no_token() -> None:
    assert unnamed(ALL, {**NAMED_ALL, "serviceAccounts": [], "serviceAccountName": "there"}) == [
        "spec.volumes[t].projected"
    ]


RUNTIMES = {"runtimeClasses": [{"name": "kata", "namespaces": ["demo"]}, {"name": "gvisor"}]}


@pytest.mark.parametrize(
    ("runtime", "pods", "namespace", "want"),
    [
        pytest.param("kata", {}, "demo", True, id="without a list each one"),
        pytest.param("kata", RUNTIMES, "demo", True, id="in its namespace"),
        pytest.param("kata", RUNTIMES, "other", False, id="in another namespace"),
        pytest.param("gvisor", RUNTIMES, "other", True, id="in all namespaces"),
        pytest.param("nvidia", RUNTIMES, "demo", False, id="not in the list"),
        pytest.param("nvidia", {**RUNTIMES, "runtimeClassName": "runc"}, "demo", True, id="replaced"),
    ],
)
def test_a_list_of_runtime_classes_bounds_what_pods_may_use(
    runtime: str, pods: Raw, namespace: str, want: bool
) -> None:
    assert (unnamed({"runtimeClassName": runtime}, pods, namespace) == []) is want


@pytest.mark.parametrize(
    ("kind", "name", "want"),
    [
        ("serviceAccount", "raydata", "spec.pods.serviceAccounts: [{name: raydata, namespaces: [demo]}]"),
        ("serviceAccountToken", "raydata", "spec.pods.serviceAccounts: [{name: raydata, namespaces: [demo]}]"),
        ("persistentVolumeClaim", "x.y", "spec.pods.persistentVolumeClaims: [{name: x.y, namespaces: [demo]}]"),
        ("runtimeClass", "kata", "spec.pods.runtimeClasses: [{name: kata, namespaces: [demo]}]"),
        (
            "resourceClaimTemplate", "one-gpu",
            "spec.pods.resourceClaimTemplates: [{name: one-gpu, namespaces: [demo], resources: {example.com/gpu: 1}}]",
        ),
        ("hostPath", "/mnt/a b", 'spec.pods.hostPaths: [{prefix: "/mnt/a b", namespaces: [demo]}]'),
        ("persistentVolumeClaim", "12", 'spec.pods.persistentVolumeClaims: [{name: "12", namespaces: [demo]}]'),
        ("persistentVolumeClaim", "on", 'spec.pods.persistentVolumeClaims: [{name: "on", namespaces: [demo]}]'),
        (
            "hostPath", '/a}, {prefix: /etc',
            'spec.pods.hostPaths: [{prefix: "/a}, {prefix: /etc", namespaces: [demo]}]',
        ),
        ("hostPath", '/a", x: "', 'spec.pods.hostPaths: [{prefix: "/a\\", x: \\"", namespaces: [demo]}]'),
    ],
)  # fmt: skip
def test_the_line_names_the_object_and_nothing_else(kind: RequiredKind, name: str, want: str) -> None:
    line = naming_line(RequiredObject(kind, "spec.x", name), "demo")
    assert line == want
    (entries,) = yaml.safe_load(line).values()
    resources = {"resources": {"example.com/gpu": 1}} if kind == "resourceClaimTemplate" else {}
    assert entries == [{"prefix" if kind == "hostPath" else "name": name, "namespaces": ["demo"], **resources}]


@pytest.mark.parametrize(
    ("path", "pods", "want"),
    [
        ("/", {}, "spec.volumes[h].hostPath is /: no WorkerCluster can name it"),
        (
            "/models", {},
            "spec.volumes[h].hostPath is /models: its WorkerCluster does not name it; add spec.pods.hostPaths: "
            "[{prefix: /models, namespaces: [demo]}] to it",
        ),
        (
            "/s/a", {"hostPaths": [{"prefix": "/s", "readOnly": False}]},
            "spec.volumes[h].hostPath is /s/a: it lies beneath a path that pods there may write to; use that path, and "
            "a subPath of the mount",
        ),
        ("/models", {"hostPaths": [{"prefix": "/models"}]}, ""),
    ],
)  # fmt: skip
def test_the_reason_has_the_remedy(path: str, pods: Raw, want: str) -> None:
    required = required_objects({"volumes": [{"name": "h", "hostPath": {"path": path}}]})
    given = mapping(**pods)
    assert unnamed_reason(unnamed_objects(required, given, "demo"), given, "demo") == want
