"""A share is one group Workload with an anchor. It requests at least what its pods will request, in the same bytes
each time."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects import specs
from adapter.objects.pod_requests import pod_requests
from adapter.objects.unstructured import Raw
from adapter.rewrite import group_workload
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from hack.corpus import golden, reduce, samples
from hack.lab.base.paths import REPO
from tests.unit.builders import make_worker_cluster

TARGET = Target(
    cluster="east",
    zone="us-east-1a",
    queue="team-a",
    manager="mgr-1",
    workload="rayjob-sample-4f2a1",
    workload_uid="9b0c6a52",
    placement="rayjob-sample-4f2a1",
    share="rayspan-7d3f0a-east",
    round=2,
)
ORIGIN = {
    "rayspan.dev/manager": "mgr-1",
    "rayspan.dev/workload-uid": "9b0c6a52",
    "rayspan.dev/placement": "rayjob-sample-4f2a1",
    "rayspan.dev/cluster": "east",
}
WAITER = {
    "name": "wait-gcs-ready",
    "image": "ray",
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
KUBERAY_WAITER = {
    **WAITER,
    "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}},
}
WAITER_CPU = {**WAITER, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
RAY = {"name": "ray-worker", "image": "ray", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
CPU_ONLY = {"name": "ray-worker", "image": "ray", "resources": {"requests": {"cpu": "1"}}}
TINY = {**RAY, "resources": {"requests": {"cpu": "100m"}}}
TINY_WAITER = {**WAITER, "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}}}


def test_a_role_is_eight_hex_digits_that_never_change() -> None:
    """Every slot contains it: another hash after an upgrade would strand running pods."""
    assert group_workload.role_of_group("workers") == "ed574aa7"


def test_a_group_and_its_podset_have_the_same_role() -> None:
    """Kueue lower-cases a group's name, KubeRay's label does not."""
    assert (
        group_workload.role_of_group("GPU-Workers")
        == group_workload.role_of_group("gpu-workers")
        != group_workload.role_of_group("workers")
    )


@dataclass(frozen=True)
class Case:
    id: str
    given: Raw
    want: Raw
    why: str


CASES = [
    Case(
        "the init container that KubeRay will add is counted",
        {"containers": [RAY]},
        {"initContainers": [WAITER], "containers": [RAY]},
        "the pod that comes is the template and this container",
    ),
    Case(
        "the init container keeps KubeRay's requests where the worker's are lower",
        {"containers": [TINY]},
        {"initContainers": [TINY_WAITER], "containers": [TINY]},
        "the pod that comes has them",
    ),
    Case(
        "a resource that its user did not request is not requested for the init container",
        {"containers": [CPU_ONLY]},
        {"initContainers": [WAITER_CPU], "containers": [CPU_ONLY]},
        "a ClusterQueue that does not cover memory takes no Workload that names it",
    ),
    Case(
        "the init container comes last, as in the pod",
        {"containers": [RAY], "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}]},
        {"initContainers": [{"name": "sidecar", "restartPolicy": "Always"}, WAITER], "containers": [RAY]},
        "a sidecar before it adds to it",
    ),
    Case(
        "an init container of that name is not added again",
        {"containers": [RAY], "initContainers": [{"name": "wait-gcs-ready", "image": "mine"}]},
        {"initContainers": [{"name": "wait-gcs-ready", "image": "mine"}], "containers": [RAY]},
        "names are unique in a pod",
    ),
    Case(
        "fields that are counted stay, fields of the process go",
        {
            "containers": [{**RAY, "env": [{"name": "TOKEN", "value": "x"}], "command": ["c"], "volumeMounts": [{}]}],
            "volumes": [{"name": "v"}],
            "resources": {"requests": {"cpu": "2"}},
            "runtimeClassName": "kata",
        },
        {
            "initContainers": [WAITER],
            "containers": [RAY],
            "resources": {"requests": {"cpu": "2"}},
            "runtimeClassName": "kata",
        },
        "a reservation runs nothing and should hold no secret",
    ),
    Case(
        "the manager's own constraints are removed",
        {
            "containers": [RAY],
            "nodeSelector": {"rayspan.dev/pool": "remote", names.LOCK_NODE_SELECTOR: "only", "gpu": "a100"},
            "serviceAccountName": "default",
            "priorityClassName": "high",
            "schedulingGates": [{"name": names.GATE}],
        },
        {"initContainers": [WAITER], "containers": [RAY], "nodeSelector": {"gpu": "a100"}},
        "they would keep every flavor there from fitting",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_template(case: Case) -> None:
    before = copy.deepcopy(case.given)
    assert group_workload.reserved_template({"spec": case.given}, TARGET)["spec"] == case.want, case.why
    assert case.given == before


def test_an_anchor_describes_itself() -> None:
    anchor = group_workload.build_anchor(TARGET, "demo")
    assert (anchor["apiVersion"], anchor["kind"]) == ("v1", "ConfigMap")
    assert anchor["metadata"] == {
        "name": TARGET.share,
        "namespace": "demo",
        "labels": ORIGIN,
        "annotations": {"rayspan.dev/workload": TARGET.workload, "rayspan.dev/round": "2"},
    }
    assert "Deleting" in anchor["data"]["about"]


def made_workload(**options: Any) -> Raw:
    labels = {"team": "vision", names.PLACEMENT_LABEL: "p"}
    groups = [("Workers", 2, {"metadata": {"labels": labels}, "spec": {"containers": [RAY]}})]
    return group_workload.build_workload(TARGET, "demo", groups, "anchor-uid", **options)


def test_a_group_workload_is_a_prebuilt_pod_group_of_kueue() -> None:
    template = {
        "metadata": {"labels": {"team": "vision", "rayspan.dev/ray-group": "Workers"}},
        "spec": {"initContainers": [WAITER], "containers": [RAY]},
    }
    assert made_workload() == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": TARGET.share,
            "namespace": "demo",
            "labels": ORIGIN,
            "annotations": {
                "rayspan.dev/workload": TARGET.workload,
                "rayspan.dev/round": "2",
                "kueue.x-k8s.io/is-group-workload": "true",
                "rayspan.dev/priority": "0",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": TARGET.share, "uid": "anchor-uid"},
            ],
        },
        "spec": {
            "active": True,
            "queueName": "team-a",
            "podSets": [{"name": group_workload.role_of_group("workers"), "count": 2, "template": template}],
        },
    }


def test_a_topology_request_of_the_template_is_that_of_podset_and_pod() -> None:
    """Kueue assigns domains to the podset, and gives them to pods with its annotation only."""
    metadata = {"annotations": {"rayspan.dev/podset-required-topology": "example.com/rack"}}
    template: Raw = {"metadata": metadata, "spec": {"containers": [RAY]}}
    other: Raw = {"spec": {"containers": [RAY]}}
    groups = [("Workers", 2, template), ("Others", 1, other)]
    podsets = group_workload.build_workload(TARGET, "demo", groups, "uid")["spec"]["podSets"]
    requests = {podset["name"]: podset.get("topologyRequest") for podset in podsets}
    assert requests == {
        group_workload.role_of_group("workers"): {"required": "example.com/rack"},
        group_workload.role_of_group("others"): None,
    }
    pod = {"metadata": {"name": "w", "namespace": "demo", **metadata}, "spec": {"containers": [RAY]}}
    made = remote_pod(pod, head=HeadAddress(namespace="demo"), target=TARGET, role="r", slot="s", anchor_uid="uid")
    topology = {key: text for key, text in made["metadata"]["annotations"].items() if "topology" in key}
    assert topology == {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}


def test_podsets_are_sorted_by_name() -> None:
    """Kueue 0.19.2 walks the sorted roles of the pods along this list once. Observed: with podsets out of order it
    finishes the Workload as OutOfSync when the first pod appears, and deletes that pod."""
    groups = [(name, 1, {"spec": {"containers": [RAY]}}) for name in ("a", "b", "c", "d")]
    podsets = group_workload.build_workload(TARGET, "demo", groups, "uid")["spec"]["podSets"]
    found = [podset["name"] for podset in podsets]
    assert (
        found
        == sorted(group_workload.role_of_group(name) for name in "abcd")
        != [group_workload.role_of_group(name) for name in "abcd"]
    )


def test_the_priority_is_copied_as_a_number_without_a_class() -> None:
    """The class may be missing in the worker cluster. With a class, Kueue would take that class's value."""
    assert made_workload(priority=0)["spec"]["priority"] == 0
    assert made_workload(priority=7)["spec"].keys() == {"active", "queueName", "podSets", "priority"}
    assert "priority" not in made_workload()["spec"]


@pytest.mark.parametrize(
    ("priority", "most", "want"),
    [
        pytest.param(7, 10**9, 7, id="the job's own priority"),
        pytest.param(2 * 10**9, 10**9, 10**9, id="a system priority is capped"),
        pytest.param(7, -1, -1, id="all priorities are below the cluster's own"),
        pytest.param(None, -1, -1, id="no priority counts as 0 and is capped"),
        pytest.param(None, 10**9, None, id="no priority below the cap is left out"),
        pytest.param(-5, -1, -5, id="a priority below the cap stays"),
    ],
)
def test_a_cluster_caps_the_priority(priority: int | None, most: int, want: int | None) -> None:
    spec = make_worker_cluster("east", maxPriority=most)
    target = Target.for_share(
        "east",
        specs.parse_worker_cluster(spec),
        queue="q",
        manager="m",
        workload="w",
        workload_uid="u",
        placement="p",
        round_=1,
    )
    made = group_workload.build_workload(target, "demo", [], "uid", priority=priority)
    assert made["spec"].get("priority") == want
    assert made["metadata"]["annotations"][names.PRIORITY_ANNOTATION] == str(want or 0)


@pytest.mark.parametrize("path", sorted(golden.FOLDER.glob("*.in.yaml")), ids=lambda path: path.name.partition(".")[0])
def test_a_recorded_pod_requests_no_more_than_its_group_reserved(path: Path) -> None:
    """The reservation is made from the RayCluster's template, which is what Kueue sees in the manager."""
    pod = yaml.safe_load(path.read_text())
    sample = yaml.safe_load((REPO / samples.OURS / path.name.replace(".in.", ".")).read_text())
    ray_cluster = reduce.ray_cluster(sample, "corpus")
    assert ray_cluster
    groups = ray_cluster["spec"]["workerGroupSpecs"]
    template = next(group for group in groups if group["groupName"] == pod["metadata"]["labels"]["ray.io/group"])[
        "template"
    ]
    asked = pod_requests(
        remote_pod(pod, head=HeadAddress.from_pod(pod, "10.0.0.1"), target=TARGET, role="r", slot="s", anchor_uid="u")[
            "spec"
        ]
    )
    reserved = pod_requests(group_workload.reserved_template(template, TARGET)["spec"])
    assert {name: amount for name, amount in asked.items() if amount > reserved.get(name, 0)} == {}


# --- properties -------------------------------------------------------------------------------------------------------

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 3).map(str), max_size=3)
CONTAINERS = st.builds(
    lambda requests, always: {"resources": {"requests": requests}} | ({"restartPolicy": "Always"} if always else {}),
    AMOUNTS,
    st.booleans(),
)


def named(containers: list[Raw], prefix: str) -> Iterator[Raw]:
    return ({"name": f"{prefix}{at}", "image": "i", **container} for at, container in enumerate(containers))


@given(st.lists(CONTAINERS, min_size=1, max_size=3), st.lists(CONTAINERS, max_size=3))
def test_a_pod_of_kuberay_requests_exactly_what_was_reserved(main: list[Raw], init: list[Raw]) -> None:
    spec = {"containers": list(named(main, "c")), "initContainers": list(named(init, "i"))}
    made = {**spec, "initContainers": [*spec["initContainers"], KUBERAY_WAITER]}
    asked = {"pods"}.union(*(container["resources"]["requests"] for container in (*main, *init)))
    counted = {name: amount for name, amount in pod_requests(made).items() if name in asked}
    assert pod_requests(group_workload.reserved_template({"spec": spec}, TARGET)["spec"]) == counted


@given(st.integers(0, 9))
def test_the_same_share_has_the_same_bytes(number: int) -> None:
    one, two = replace(TARGET, round=number), replace(TARGET, round=number)
    assert json.dumps(group_workload.build_anchor(one, "demo")) == json.dumps(group_workload.build_anchor(two, "demo"))
    assert group_workload.build_anchor(one, "demo") != group_workload.build_anchor(
        replace(TARGET, round=number + 1), "demo"
    )
