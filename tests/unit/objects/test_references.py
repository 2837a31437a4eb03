"""References of a pod to Secrets and ConfigMaps are found in every field that Kubernetes allows. Nothing else is
changed."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.references import Reference, find_in_spec, rename_in_spec

Spec = dict[str, Any]
POINTER = {"name": "it", "key": "k"}


def container(kind: str = "containers", **fields: Any) -> Spec:
    return {kind: [{"name": "c", **fields}]}


def volume(**source: Any) -> Spec:
    return {"volumes": [{"name": "v", **source}]}


def env(**origin: Any) -> list[Spec]:
    return [{"name": "E", "valueFrom": origin}]


PLACES = [
    (volume(secret={"secretName": "it"}), "Secret", "spec.volumes[v].secret"),
    (volume(configMap={"name": "it"}), "ConfigMap", "spec.volumes[v].configMap"),
    (volume(projected={"sources": [{}, {"secret": {"name": "it"}}]}), "Secret", "spec.volumes[v].projected.secret"),
    (
        volume(projected={"sources": [{"configMap": {"name": "it"}}]}),
        "ConfigMap",
        "spec.volumes[v].projected.configMap",
    ),
    (container(env=env(secretKeyRef=POINTER)), "Secret", "spec.containers[c].env[E].secretKeyRef"),
    (container(env=env(configMapKeyRef=POINTER)), "ConfigMap", "spec.containers[c].env[E].configMapKeyRef"),
    (container(envFrom=[{"secretRef": {"name": "it"}}]), "Secret", "spec.containers[c].envFrom.secretRef"),
    (container(envFrom=[{"configMapRef": {"name": "it"}}]), "ConfigMap", "spec.containers[c].envFrom.configMapRef"),
    (
        container("initContainers", env=env(secretKeyRef=POINTER)),
        "Secret",
        "spec.initContainers[c].env[E].secretKeyRef",
    ),
    ({"imagePullSecrets": [{"name": "it"}]}, "Secret", "spec.imagePullSecrets"),
]
NOWHERE: list[Spec] = [
    {},
    {"volumes": None, "containers": [], "imagePullSecrets": None},
    volume(emptyDir={}),
    volume(csi={"nodePublishSecretRef": {"name": "it"}}),
    volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {}}]}),
    volume(secret={}, configMap={"name": ""}, projected={"sources": None}),
    container(env=[{"name": "E", "value": "it"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
    container(envFrom=[{"prefix": "P_"}], env=None),
]


@pytest.mark.parametrize(("spec", "kind", "field"), PLACES, ids=[field for _, _, field in PLACES])
def test_a_reference_is_found_and_renamed_in_its_field(spec: Spec, kind: str, field: str) -> None:
    before = copy.deepcopy(spec)
    assert find_in_spec(spec) == {Reference(kind, "it"): field}
    there = rename_in_spec(spec, lambda one: f"copy-of-{one.name}")
    assert find_in_spec(there) == {Reference(kind, "copy-of-it"): field}
    assert rename_in_spec(there, lambda one: one.name.removeprefix("copy-of-")) == spec == before


@pytest.mark.parametrize("spec", NOWHERE, ids=str)
def test_fields_without_a_reference_are_unchanged(spec: Spec) -> None:
    assert find_in_spec(spec) == {}
    assert rename_in_spec(spec, lambda one: "other") == spec


@pytest.mark.parametrize(
    "spec",
    [
        volume(secret={"secretName": "it", "optional": True}),
        volume(projected={"sources": [{"secret": {"name": "it", "optional": True}}]}),
        container(env=env(secretKeyRef={**POINTER, "optional": True})),
        container(envFrom=[{"secretRef": {"name": "it", "optional": True}}]),
    ],
    ids=str,
)
def test_an_optional_reference_is_not_needed(spec: Spec) -> None:
    assert find_in_spec(spec) == {Reference("Secret", "it"): ""}


@pytest.mark.parametrize("turn", [1, -1])
def test_a_reference_optional_in_one_field_may_be_needed_in_another(turn: int) -> None:
    optional, needed = {"secretRef": {"name": "it", "optional": True}}, {"secretRef": {"name": "it"}}
    spec = container(envFrom=[optional, needed][::turn])
    assert find_in_spec(spec) == {Reference("Secret", "it"): "spec.containers[c].envFrom.secretRef"}


def test_the_named_field_is_one_that_the_user_wrote() -> None:
    """KubeRay copies the env of the Ray container to its own init container."""
    spec = container("initContainers", env=env(secretKeyRef=POINTER)) | container(env=env(secretKeyRef=POINTER))
    assert find_in_spec(spec) == {Reference("Secret", "it"): "spec.containers[c].env[E].secretKeyRef"}


NAMES = st.sampled_from(["a", "b", "c"])
POINTERS = st.fixed_dictionaries({"name": NAMES}, optional={"key": NAMES, "optional": st.booleans()})
OTHER = st.fixed_dictionaries({"unknown": st.fixed_dictionaries({"name": NAMES})})
SOURCES = st.lists(
    st.one_of(st.fixed_dictionaries({"secret": POINTERS}), st.fixed_dictionaries({"configMap": POINTERS}), OTHER),
    max_size=3,
)
VOLUMES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": NAMES, "secret": st.fixed_dictionaries({"secretName": NAMES})}),
        st.fixed_dictionaries({"name": NAMES, "configMap": POINTERS}),
        st.fixed_dictionaries({"name": NAMES, "projected": st.fixed_dictionaries({"sources": SOURCES})}),
        OTHER,
    ),
    max_size=3,
)
ENV = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "value": NAMES,
        "valueFrom": st.dictionaries(st.sampled_from(["secretKeyRef", "configMapKeyRef", "x"]), POINTERS),
    },
)
ENV_FROM = st.dictionaries(st.sampled_from(["secretRef", "configMapRef", "x"]), POINTERS)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "image": NAMES},
        optional={"env": st.lists(ENV, max_size=3), "envFrom": st.lists(ENV_FROM, max_size=2)},
    ),
    max_size=2,
)
PULL = st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "volumes": VOLUMES,
        "containers": CONTAINERS,
        "initContainers": CONTAINERS,
        "imagePullSecrets": PULL,
        "other": NAMES,
    },
)


@given(SPECS)
def test_every_reference_is_renamed_and_nothing_else_is_changed(spec: Spec) -> None:
    """The renamed references are found again. With the old names restored, the spec is the original."""
    there = rename_in_spec(spec, lambda one: f"{one.kind}/{one.name}")
    assert {one.name: field for one, field in find_in_spec(there).items()} == {
        f"{one.kind}/{one.name}": field for one, field in find_in_spec(spec).items()
    }
    assert rename_in_spec(there, lambda one: one.name.partition("/")[2]) == spec


def test_a_field_name_cannot_break_a_message() -> None:
    """The names in a template are validated only when it becomes a pod."""
    long, cut = "x" * 100_000, "x" * 64 + "…"
    container = {"name": long, "env": [{"name": "a\nb", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    found = find_in_spec({"containers": [container], "volumes": [{"name": long, "configMap": {"name": "c"}}]})
    assert sorted(found.values()) == [
        f"spec.containers[{cut}].env[a\N{REPLACEMENT CHARACTER}b].secretKeyRef", f"spec.volumes[{cut}].configMap",
    ]  # fmt: skip
