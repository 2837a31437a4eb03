"""What is said of CRDs that are older than the controller, by the schemas that an API server publishes."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from adapter import names
from adapter.admission import crd_fields
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.clusters.crd_check import shipped_schemas


def published(*older: Sequence[str]) -> Raw:
    """The document of an API server with the shipped CRDs, without these paths in the schemas."""
    schemas: Any = copy.deepcopy(dict(shipped_schemas()))
    for *path, last in older:
        node = schemas
        for step in path:
            node = node[step]
        del node[last]
    group, version = names.API_VERSION.split("/")
    return {
        "components": {
            "schemas": {
                f"dev.rayspan.{version}.{kind}": {
                    **schema,
                    "x-kubernetes-group-version-kind": [{"group": group, "kind": kind, "version": version}],
                }
                for kind, schema in schemas.items()
            }
        }
    }


GROUP = (
    "Placement",
    "properties",
    "spec",
    "properties",
    "shares",
    "items",
    "properties",
    "groups",
    "items",
    "properties",
)
COMMAND = ("WorkerAccess", "properties", "spec", "properties", "command")
CLAIMS = ("WorkerCluster", "properties", "spec", "properties", "pods", "properties", "persistentVolumeClaims")


@pytest.mark.parametrize(
    ("older", "missing"),
    [
        pytest.param([], {}, id="as new as the controller"),
        pytest.param([(*GROUP, "hosts")], {"Placement": ("spec.shares[].groups[].hosts",)}, id="a field in lists"),
        pytest.param([CLAIMS], {"WorkerCluster": ("spec.pods.persistentVolumeClaims",)}, id="with all beneath it"),
        pytest.param([("DispatchPolicy", "properties", "status")], {"DispatchPolicy": ("status",)}, id="a status"),
        pytest.param([("WorkerCluster",)], {}, id="a kind that is not served"),
        pytest.param([("WorkerAccess",)], {}, id="the component worker-access is not installed"),
        pytest.param([COMMAND], {"WorkerAccess": ("spec.command",)}, id="a field of the component's kind"),
    ],
)
def test_the_fields_that_an_api_server_would_drop(older: Sequence[Sequence[str]], missing: Raw) -> None:
    assert crd_fields.missing_fields(shipped_schemas(), published(*older)) == missing


@pytest.mark.parametrize("document", [{}, {"components": None}, {"components": {"schemas": {"a": 1, "b": {}}}}])
def test_a_document_without_our_kinds_says_nothing(document: Raw) -> None:
    assert crd_fields.missing_fields(shipped_schemas(), document) == {}


def test_an_older_placement_stops_new_jobs_and_the_sentence_says_what_to_do() -> None:
    missing = {"Placement": ("spec.a", "spec.b", "spec.c", "spec.d"), "WorkerCluster": ("status.e",)}
    assert crd_fields.record_problem(missing) == (
        "The CRDs in the manager are older than the controller, and its API server drops what they do not declare: "
        "Placement lacks spec.a, spec.b, spec.c and 1 more. Apply the CRDs of this version (manifests/crds). Until "
        "then no job is placed; what runs goes on."
    )
    assert "; WorkerCluster lacks status.e. Apply" in crd_fields.outdated_text(missing)


@pytest.mark.parametrize(
    ("kinds", "where"),
    [
        (["WorkerCluster"], "manifests/crds"),
        (["WorkerAccess"], "kustomize/components/worker-access"),
        (["Placement", "WorkerAccess"], "manifests/crds and kustomize/components/worker-access"),
    ],
)
def test_the_sentence_says_where_the_crds_are(kinds: list[str], where: str) -> None:
    text = crd_fields.outdated_text({kind: ("spec.a",) for kind in kinds})
    assert text.endswith(f" lacks spec.a. Apply the CRDs of this version ({where}).")


def test_other_older_kinds_stop_no_job() -> None:
    assert crd_fields.record_problem({"WorkerCluster": ("spec.pods.env",), "WorkerAccess": ("spec.tty",)}) == ""
    assert crd_fields.record_problem({}) == "" and crd_fields.outdated_text({}) == ""
