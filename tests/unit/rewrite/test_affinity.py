"""Rules about nodes and other pods keep their meaning in the worker cluster; rules about the manager's nodes and
labels are removed."""

from dataclasses import dataclass
from typing import Any

import pytest

from adapter.objects.unstructured import RawDict as Raw
from adapter.rewrite import affinity, group_workload, stripping
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
TARGET = Target(
    cluster="east", zone="east", queue="q", manager="m", workload="w", workload_uid="u", placement="p", share="p-1",
    round=1,
    manager_flavor_keys=frozenset({"example.com/flavor"}),
)  # fmt: skip


def has(key: str, *values: str) -> Raw:
    return {"key": key, "operator": "In", "values": list(values)}


OURS, FLAVOR, GPU = has("rayspan.dev/pool", "remote"), has("example.com/flavor", "far"), has("gpu", "a100")


def required(*terms: list[Raw]) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


def preferred(*terms: list[Raw]) -> Raw:
    return {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": term}} for term in terms]}}


@dataclass(frozen=True)
class Case:
    id: str
    given: Raw | None
    want: Raw | None
    why: str


NODES = [
    Case("no affinity", None, None, "nothing to say"),
    Case("the user's own term stays", required([GPU]), required([GPU]), "nodes there may have that label, too"),
    Case(
        "a label of ours is removed",
        required([OURS, GPU]),
        required([GPU]),
        "there it would mean that cluster's remote nodes",
    ),
    Case(
        "a label of the manager's flavor is removed",
        required([FLAVOR, GPU]),
        required([GPU]),
        "it is the manager's word",
    ),
    Case("a term of ours is removed", required([OURS], [GPU]), None, "terms are ORed, and this one is met"),
    Case("a term that matches no node stays", required([]), required([]), "it was no node in the manager, either"),
    Case(
        "an empty preference is removed",
        preferred([OURS], [GPU, FLAVOR]),
        preferred([GPU]),
        "a preference for nothing is none",
    ),
    Case("an affinity of ours only is removed", preferred([OURS]), None, "an empty affinity is none"),
]


@pytest.mark.parametrize("case", NODES, ids=lambda case: case.id)
def test_node_affinity(case: Case) -> None:
    spec: Raw = {"affinity": case.given} if case.given else {}
    assert stripping.portable_spec(spec, TARGET).get("affinity") == case.want, case.why


def test_an_unknown_field_of_affinity_stays() -> None:
    spec = {"affinity": {"planetAffinity": {"near": "mars"}}}
    assert stripping.portable_spec(spec, TARGET)["affinity"] == spec["affinity"]


def term(**selector: Any) -> Raw:
    return {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}


LABELS = {"matchLabels": {"ray.io/cluster": "c", "app": "x"}}
RENAMED = {"matchLabels": {"rayspan.dev/ray-cluster": "c", "app": "x"}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_selectors_of_other_pods_use_the_renamed_labels(kind: str) -> None:
    rules = {REQUIRED: [term(**LABELS)], PREFERRED: [{"weight": 9, "podAffinityTerm": term(**LABELS)}]}
    want = {REQUIRED: [term(**RENAMED)], PREFERRED: [{"weight": 9, "podAffinityTerm": term(**RENAMED)}]}
    assert stripping.portable_spec({"affinity": {kind: rules}}, TARGET)["affinity"] == {kind: want}


def test_a_renamed_label_in_a_selector_is_on_the_remote_pod() -> None:
    """Otherwise workers that must run apart would not know of each other."""
    labels = {"ray.io/cluster": "c", "ray.io/group": "g", "ray.io/is-ray-node": "yes", "ray.io/node-type": "worker"}
    selector = {"matchLabels": labels}
    pod = {
        "metadata": {"name": "p", "labels": labels},
        "spec": {"topologySpreadConstraints": [{"labelSelector": selector}]},
    }
    out = remote_pod(pod, head=HeadAddress.from_pod(pod, "10.0.0.1"), target=TARGET, role="r", slot="s", anchor_uid="a")
    (spread,) = out["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= out["metadata"]["labels"].items()
    assert not [key for key in out["metadata"]["labels"] if key.startswith("ray.io/")]


def test_merged_match_label_keys_are_removed_from_the_selector() -> None:
    """The other API server merges them again. It rejects a pod whose matchLabelKeys are in its selector (kubernetes
    1.36)."""
    merged = [has("app", "x"), has("ray.io/group", "g")]
    spread = {"matchLabelKeys": ["ray.io/group"], "labelSelector": {"matchExpressions": merged}, "maxSkew": 1}
    (out,) = stripping.portable_spec({"topologySpreadConstraints": [spread]}, TARGET)["topologySpreadConstraints"]
    assert out == {
        "matchLabelKeys": ["rayspan.dev/ray-group"],
        "labelSelector": {"matchExpressions": [has("app", "x")]},
        "maxSkew": 1,
    }


def test_mismatch_label_keys_may_be_in_the_selector() -> None:
    one = {**term(matchExpressions=[has("ray.io/group", "g")]), "mismatchLabelKeys": ["ray.io/group"]}
    out = stripping.portable_spec({"affinity": {"podAntiAffinity": {REQUIRED: [one]}}}, TARGET)["affinity"]
    key = "rayspan.dev/ray-group"
    want = {**term(matchExpressions=[has(key, "g")]), "mismatchLabelKeys": [key]}
    assert out == {"podAntiAffinity": {REQUIRED: [want]}}


def test_a_constraint_without_a_selector_stays() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    assert stripping.portable_spec({"topologySpreadConstraints": [spread]}, TARGET)["topologySpreadConstraints"] == [
        spread
    ]


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("ray.io/group", "rayspan.dev/ray-group"),
        ("app", "app"),
        ("ray.ion/x", "ray.ion/x"),
        ("x.ray.io/y", "x.ray.io/y"),
        (f"ray.io/{'a' * 59}", f"rayspan.dev/ray-{'a' * 59}"),
        (f"ray.io/{'a' * 60}", f"ray.io/{'a' * 60}"),
    ],
)
def test_remote_label_key(key: str, want: str) -> None:
    assert affinity.remote_label_key(key) == want


def test_a_reservation_has_the_same_rules_as_its_pods() -> None:
    spec = {"containers": [], "affinity": required([OURS, GPU]) | {"podAntiAffinity": {REQUIRED: [term(**LABELS)]}}}
    assert (
        group_workload.reserved_template({"spec": spec}, TARGET)["spec"]["affinity"]
        == stripping.portable_spec(spec, TARGET)["affinity"]
    )
