"""Extended resources have the names of the worker cluster in pods, shares, dry runs and plans."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.extended_resources import describe_names, format_names, is_extended_resource, read_names
from adapter.objects.pod_requests import pod_requests
from adapter.objects.reservation import parse_reservation
from adapter.objects.specs import InvalidSpec
from adapter.objects.unstructured import Raw
from adapter.rewrite import dry_run_pod, group_workload
from adapter.rewrite.resource_names import rename_resources, requested_names
from tests.unit import builders
from tests.unit.rewrite.test_pod_mapping import TARGET, mapped, rewrite
from tests.unit.stores import Sight, fill, make_group, make_member, make_ray_job

NVIDIA, AMD, MIG, GAUDI = "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "habana.ai/gaudi"
TO_AMD = {NVIDIA: AMD}


def container(limits: Raw | None = None, requests: Raw | None = None) -> Raw:
    lists = {"limits": limits, "requests": requests}
    return {"name": "c", "resources": {kind: amounts for kind, amounts in lists.items() if amounts is not None}}


@pytest.mark.parametrize(
    ("renames", "resources", "want"),
    [
        pytest.param(TO_AMD, {"limits": {NVIDIA: "2"}, "requests": {NVIDIA: "2", "cpu": "1"}},
            {"limits": {AMD: "2"}, "requests": {AMD: "2", "cpu": "1"}}, id="both lists"),
        pytest.param(TO_AMD, {"limits": {NVIDIA: 2}}, {"limits": {AMD: 2}, "requests": {AMD: 2}},
            id="a limit alone is a request"),
        pytest.param(TO_AMD, {"limits": {AMD: "1"}}, {"limits": {AMD: "1"}}, id="a name that is not renamed"),
        pytest.param(TO_AMD, {"limits": {NVIDIA: "1", AMD: "2"}, "requests": {AMD: "2"}},
            {"limits": {AMD: "3"}, "requests": {AMD: "3"}}, id="the amounts of one name are added"),
        pytest.param({NVIDIA: AMD, MIG: AMD}, {"limits": {NVIDIA: "1", MIG: "2"}},
            {"limits": {AMD: "3"}, "requests": {AMD: "3"}}, id="two names lead to one"),
        pytest.param({NVIDIA: AMD, MIG: AMD}, {"limits": {NVIDIA: "x", MIG: "2"}},
            {"limits": {AMD: "x"}, "requests": {AMD: "x"}}, id="no quantity, which the API server denies"),
        pytest.param(TO_AMD, {"limits": None, "requests": None, "claims": [{"name": "a"}]},
            {"limits": None, "requests": None, "claims": [{"name": "a"}]}, id="no amounts"),
        pytest.param({}, {"limits": {NVIDIA: "1"}}, {"limits": {NVIDIA: "1"}}, id="no names"),
    ],
)  # fmt: skip
def test_a_container_requests_what_the_cluster_has(renames: Raw, resources: Raw, want: Raw) -> None:
    spec = {"containers": [{"name": "c", "resources": resources}], "initContainers": [{"name": "i"}]}
    out = rename_resources(spec, renames)
    assert out["containers"][0]["resources"] == want
    assert out["initContainers"] == [{"name": "i"}]


def test_init_containers_are_renamed_by_themselves() -> None:
    """Kubernetes takes the larger step, so two names of one device in two steps are not added."""
    spec = {"containers": [container({NVIDIA: "2"})], "initContainers": [container({AMD: "1"})]}
    assert pod_requests(rename_resources(spec, TO_AMD))[AMD] == 2
    assert requested_names(spec, {NVIDIA: AMD, MIG: AMD}) == TO_AMD


AMOUNTS = st.dictionaries(st.sampled_from([NVIDIA, AMD, MIG, GAUDI, "cpu"]), st.sampled_from(["0", "1", "3"]))
CONTAINERS = st.lists(st.builds(container, AMOUNTS | st.none(), AMOUNTS | st.none()), max_size=3)
SPECS = st.builds(lambda main, inits: {"containers": main, "initContainers": inits}, CONTAINERS, CONTAINERS)
RENAMES = st.dictionaries(st.sampled_from([NVIDIA, MIG]), st.sampled_from([AMD, GAUDI, "example.com/x"]))


@given(SPECS, RENAMES)
def test_no_device_is_lost_and_a_second_time_changes_nothing(spec: Raw, renames: dict[str, str]) -> None:
    out = rename_resources(spec, renames)
    assert rename_resources(out, renames) == out
    assert requested_names(out, renames) == {}
    for key in ("containers", "initContainers"):
        for before, after in zip(spec[key], out[key], strict=True):
            wanted: dict[str, int] = {}
            for name, amount in pod_requests({"containers": [before]}).items():
                wanted[renames.get(name, name)] = wanted.get(renames.get(name, name), 0) + amount
            assert pod_requests({"containers": [after]}) == wanted


@given(SPECS, RENAMES)
def test_the_pod_the_share_and_the_dry_run_agree(spec: Raw, renames: dict[str, str]) -> None:
    target = mapped(extendedResources=renames)
    remote = pod_requests(rewrite(spec, target)["spec"])
    share = group_workload.reserved_template({"spec": spec}, target)["spec"]
    asked = pod_requests(dry_run_pod.build_pod({"spec": spec}, "workers", target, "demo")["spec"])
    for name in (NVIDIA, AMD, MIG, GAUDI, "example.com/x"):
        assert remote.get(name) == pod_requests(share).get(name) == asked.get(name)


# --- the names of a share ---------------------------------------------------------------------------------------------


def test_a_share_records_the_names_that_it_uses() -> None:
    target = mapped(extendedResources={NVIDIA: AMD, MIG: GAUDI})
    workload = group_workload.build_workload(
        target, "demo", [("workers", 2, {"spec": {"containers": [container({NVIDIA: "1"})]}})], "a"
    )
    assert parse_reservation("east", workload).resource_names == TO_AMD
    (podset,) = workload["spec"]["podSets"]
    assert pod_requests(podset["template"]["spec"]) == {AMD: 1, "pods": 1}


def test_a_share_without_other_names_records_none() -> None:
    """As the shares of earlier releases, whose pods keep the manager's names."""
    target = mapped(extendedResources={MIG: AMD})
    workload = group_workload.build_workload(target, "demo", [("w", 1, {"spec": {"containers": [container()]}})], "a")
    assert names.RESOURCE_NAMES_ANNOTATION not in workload["metadata"]["annotations"]
    assert parse_reservation("east", workload).resource_names == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "1", "null", '{"a": 1}', '{"nvidia.com/gpu": {}}', '{"nvidia.com/gpu": "cpu"}',
        '{"cpu": "amd.com/gpu"}', '{"nvidia.com/gpu": "kubernetes.io/x"}', '{"nvidia.com/gpu": "amd.com/gpu"' * 9,
        "[" * 9999, " " * 99_999 + "{}",
    ],
)  # fmt: skip
def test_a_text_of_another_form_names_nothing(text: str) -> None:
    """Whoever may edit Workloads there writes what he likes; cpu could then leave a pod uncounted."""
    assert read_names(text) == {}


@given(RENAMES)
def test_the_names_survive_the_annotation(renames: dict[str, str]) -> None:
    assert read_names(format_names(renames)) == renames


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (NVIDIA, True), (MIG, True), ("rdma/hca", True), ("vpc.amazonaws.com/efa", True), ("cpu", False),
        ("kubernetes.io/x", False), ("a.kubernetes.io/x", False), ("requests.a/x", False), ("a/", False),
        ("/x", False), ("a/b/c", False), ("A/b", False), ("a/" + "b" * 64, False), ("", False),
        ("hugepages-2Mi", False),
    ],
)  # fmt: skip
def test_the_name_of_an_extended_resource(name: str, want: bool) -> None:
    assert is_extended_resource(name) is want


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ({"extendedResources": {"cpu": AMD}}, "'cpu' is not the name of an extended resource"),
        ({"extendedResources": {NVIDIA: "memory"}}, "'memory' is not the name of an extended resource"),
        ({"extendedResources": {NVIDIA: AMD, AMD: GAUDI}}, "'amd.com/gpu' is a name in the manager and one there"),
        ({"priorityClasses": [{"name": "*"}]}, "name each class"),
    ],
)
def test_a_wrong_name_is_reported(pods: Raw, text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        mapped(**pods)


def test_both_names_are_told() -> None:
    assert describe_names({NVIDIA: AMD, MIG: GAUDI}) == f"{NVIDIA} is {AMD} there and {MIG} is {GAUDI} there"
    assert describe_names({f"a.b/{number}": AMD for number in range(99)}).endswith(" and 95 more have other names")
    waiting = replace(
        parse_reservation("east", {"metadata": {"name": "s", "namespace": "demo"}}), message="No amd.com/gpu."
    )
    assert waiting.quota_message == "No amd.com/gpu."
    assert replace(waiting, resource_names=TO_AMD).quota_message == f"No amd.com/gpu; {NVIDIA} is {AMD} there"


# --- plans ------------------------------------------------------------------------------------------------------------


def planned(amds: int, *, pods: Raw, request: Raw, node: Raw | None = None, prices: Raw | None = None) -> Raw:
    """The plan for two workers where east has a quota of cpu and amd.com/gpu."""
    member = make_member("east", 8, pods=pods, pricePerHour=prices or {})
    rows = [{"name": name, "nominalQuota": str(amount)} for name, amount in {"cpu": 8, AMD: amds}.items()]
    groups = [{"coveredResources": ["cpu", AMD], "flavors": [{"name": "any", "resources": rows}]}]
    member.cluster_queues.replace([builders.make_cluster_queue(8, resourceGroups=groups)])
    (machine,) = member._node_objects
    status = {**machine["status"], "allocatable": {"cpu": "99", "pods": "99", **(node or {AMD: "8"})}}
    fill(member._node_objects, {**machine, "status": status})
    sight = Sight({"east": 8})
    sight.members["east"] = member
    sight.fleet.caches()["east"] = member
    group = make_group(2)
    group["template"]["spec"]["containers"][0]["resources"]["limits"] = request
    return dict(asyncio.run(sight.preview.preview_plan(make_ray_job(group), builders.NAMESPACE, builders.START)))


@pytest.mark.parametrize(
    ("case", "fits", "reason"),
    [
        pytest.param({"amds": 2}, True, "", id="its quota counts"),
        pytest.param({"amds": 1}, False, f"{NVIDIA} is {AMD} there", id="too little quota, by both names"),
        pytest.param({"amds": 3, "request": {NVIDIA: "1", AMD: "1"}}, False, f"{NVIDIA} is {AMD} there",
            id="two names of one device are added"),
        pytest.param({"amds": 4, "request": {NVIDIA: "1", AMD: "1"}}, True, "", id="and counted once each"),
        pytest.param({"amds": 2, "node": {NVIDIA: "8"}}, False, f"no node there has allocatable {AMD}",
            id="its nodes count"),
        pytest.param({"amds": 2, "pods": {}}, False, NVIDIA, id="without names the manager's counts"),
    ],
)  # fmt: skip
def test_a_plan_counts_by_the_names_there(case: Raw, fits: bool, reason: str) -> None:
    given_case: Any = {"pods": {"extendedResources": TO_AMD}, "request": {NVIDIA: "1"}} | dict(case)
    plan = planned(**given_case)
    assert plan["fits"] is fits
    (cluster,) = [entry for entry in plan["clusters"] if entry["cluster"] == "east"]
    assert reason in cluster["reason"]
    assert cluster.get("resourceNames", {}) == given_case["pods"].get("extendedResources", {})


def test_a_price_is_that_of_the_resource_there() -> None:
    plan = planned(2, pods={"extendedResources": TO_AMD}, request={NVIDIA: "1"}, prices={AMD: "1.5"})
    assert plan["pricePerHour"] == "3.00"


def test_an_edited_mapping_needs_another_dry_run() -> None:
    template = {"spec": {"containers": [container({NVIDIA: "1"})]}}
    digests = {
        dry_run_pod.digest(template, "w", target)
        for target in (TARGET, mapped(extendedResources=TO_AMD), mapped(extendedResources={NVIDIA: GAUDI}))
    }
    assert len(digests) == 3
