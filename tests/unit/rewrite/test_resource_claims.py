"""A pod claims devices by the ResourceClaimTemplates that its WorkerCluster names, and quota is planned for them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.admission import pod_validation
from adapter.cli.pod_diff import UNKNOWN_REASON, diff_pods
from adapter.objects.claimed_resources import add_resources, claimed_resources, read_resources, template_requests
from adapter.objects.pod_requests import UNLIMITED, Resources
from adapter.objects.required_objects import required_objects
from adapter.objects.specs import InvalidSpec
from adapter.objects.unstructured import Raw
from adapter.quota import kueue_answers
from adapter.rewrite import dry_run_pod, group_workload
from adapter.rewrite.target import Target
from tests.unit import builders
from tests.unit.rewrite.test_pod_mapping import mapped, rewrite
from tests.unit.stores import Sight, make_group, make_member, make_ray_job

GPU, MEMORY = "example.com/gpu", "gpu-memory"
ONE = {"name": "one-gpu", "as": "h200", "namespaces": ["demo"], "resources": {GPU: 1}}
SLICE = {"name": "slice", "resources": {MEMORY: "40Gi", GPU: "1"}}
NAMED = {"resourceClaimTemplates": [ONE, SLICE]}


def claim(name: str, template: str) -> Raw:
    return {"name": name, "resourceClaimTemplateName": template}


def spec_of(*claims: Raw) -> Raw:
    resources = {"requests": {"cpu": "1"}, "claims": [{"name": each["name"]} for each in claims]}
    return {"containers": [{"name": "ray", "image": "r", "resources": resources}], "resourceClaims": [*claims]}


def remote_spec(spec: Raw, target: Target, namespace: str = "demo") -> Raw:
    pod = {"metadata": {"name": "p", "uid": "pod-uid", "namespace": namespace}, "spec": spec}
    remote = rewrite(spec, target, namespace=namespace)
    assert [change for change in diff_pods(pod, remote) if change.reason == UNKNOWN_REASON] == []
    out: Raw = remote["spec"]
    return out


@pytest.mark.parametrize(
    ("claims", "namespace", "pods", "want", "refused"),
    [
        pytest.param([claim("a", "one-gpu")], "demo", NAMED, ["h200"], False, id="another name there"),
        pytest.param([claim("a", "slice")], "b", NAMED, ["slice"], False, id="the same name there"),
        pytest.param([claim("a", "one-gpu"), claim("b", "one-gpu")], "demo", NAMED, ["h200", "h200"], False,
            id="two claims by one template"),
        pytest.param([claim("a", "one-gpu")], "b", NAMED, ["one-gpu"], True, id="another namespace"),
        pytest.param([claim("a", "h200")], "demo", NAMED, ["h200"], True, id="the name there is not the manager's"),
        pytest.param([claim("a", "one-gpu"), claim("b", "all")], "demo", NAMED, ["h200", "all"], True,
            id="a template that is not named"),
        pytest.param([claim("a", "one-gpu")], "demo", {}, ["one-gpu"], True, id="nothing is named"),
        pytest.param([{"name": "a", "resourceClaimName": "one-gpu"}], "demo", NAMED, [None], True,
            id="a claim that exists"),
    ],
)  # fmt: skip
def test_the_claims_of_a_remote_pod(
    claims: list[Raw], namespace: str, pods: Raw, want: list[str | None], refused: bool
) -> None:
    spec, target = spec_of(*claims), mapped(**pods)
    out = remote_spec(spec, target, namespace)
    assert [each.get("resourceClaimTemplateName") for each in out["resourceClaims"]] == want
    assert [each["name"] for each in out["resourceClaims"]] == [each["name"] for each in claims]
    assert out["containers"][0]["resources"] == spec["containers"][0]["resources"]
    problem = pod_validation.remote_pod_problem(out, spec, target.pods, namespace)
    assert bool(problem) is refused


def test_a_claim_that_exists_is_refused_with_the_remedy() -> None:
    spec = spec_of({"name": "a", "resourceClaimName": "shared"})
    assert pod_validation.template_problem({"spec": spec}) == (
        "spec.resourceClaims[a].resourceClaimName is shared: Kueue admits no worker with a claim that exists before "
        "it; use a resourceClaimTemplateName that a WorkerCluster names"
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({**ONE, "name": "*"}, "'\\*' is no ResourceClaimTemplate: name each one"),
        ({**ONE, "resources": {}}, "at least one resource"),
        ({**ONE, "resources": {GPU: 0}}, "of each at least 1"),
        ({**ONE, "resources": {GPU: "-1"}}, "of each at least 1"),
        ({**ONE, "resources": {GPU: "many"}}, "'many' is not a quantity"),
        ({"name": "one-gpu"}, "spec.pods.resourceClaimTemplates.0.resources: Field required"),
    ],
)
def test_a_wrong_entry_is_reported(entry: Raw, text: str) -> None:
    with pytest.raises(InvalidSpec, match=text):
        mapped(resourceClaimTemplates=[entry])


# --- what a share holds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "namespace", "want"),
    [
        pytest.param([claim("a", "one-gpu")], "demo", {GPU: 1}, id="one claim"),
        pytest.param([claim("a", "one-gpu"), claim("b", "one-gpu")], "demo", {GPU: 2}, id="two claims"),
        pytest.param([claim("a", "one-gpu"), claim("b", "slice")], "demo", {GPU: 2, MEMORY: 40 * 2**30},
            id="two templates"),
        pytest.param([claim("a", "one-gpu")], "b", {}, id="another namespace"),
        pytest.param([], "demo", {}, id="no claim"),
    ],
)  # fmt: skip
def test_a_share_records_what_its_claims_are_thought_to_count(
    claims: list[Raw], namespace: str, want: Resources
) -> None:
    spec, target = spec_of(*claims), mapped(**NAMED)
    assert claimed_resources(required_objects(spec), target.pods, namespace) == want
    workload = group_workload.build_workload(target, namespace, [("w", 2, {"spec": spec})], "a")
    (podset,) = workload["spec"]["podSets"]
    assert read_resources(podset["template"]) == want
    assert template_requests(podset["template"]) == {"cpu": 1000, "pods": 1, **want}
    renamed = remote_spec(spec, target, namespace)["resourceClaims"]
    assert podset["template"]["spec"].get("resourceClaims", []) == renamed


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "1", '{"a": "1"}', '{"a": 0}', '{"a": -1}', '{"a": true}', '{"a": 1.5}', '{"a": {}}',
        f'{{"a": {2**63}}}', "[" * 9999, " " * 99_999 + '{"a": 1}',
    ],
)  # fmt: skip
def test_a_text_of_another_form_counts_nothing(text: str) -> None:
    """Whoever may edit Workloads there writes what he likes."""
    template = {"metadata": {"annotations": {names.CLAIMED_RESOURCES_ANNOTATION: text}}}
    assert read_resources(template) == {}


def test_amounts_have_an_end() -> None:
    assert add_resources({"a": 1}, {"a": UNLIMITED}) == {"a": UNLIMITED}


def test_a_dry_run_and_its_share_have_the_claims_of_the_cluster() -> None:
    """A claim that admission there adds is in the share, too: Kueue counts it."""
    template, target = {"spec": spec_of(claim("a", "one-gpu"))}, replace(mapped(**NAMED), workload_uid="uid")
    pod = dry_run_pod.build_pod(template, "w", target, "demo")
    assert pod["spec"]["resourceClaims"] == [claim("a", "h200")]
    admitted = {**pod["spec"], "resourceClaims": [claim("a", "h200"), claim("net", "nic")]}
    result = dry_run_pod.parse_response({**pod, "spec": admitted}, template, target)
    assert result.reserved_template["spec"]["resourceClaims"] == [claim("a", "h200"), claim("net", "nic")]
    assert read_resources(result.reserved_template) == {GPU: 1}
    assert GPU not in result.request, "nodes do not show it"


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        ([claim("a", "h200")], ""),
        ([], ""),
        ([claim("b", "h200")], ""),
        ([claim("a", "h200"), claim("b", "h200")], "claims of ResourceClaimTemplate h200: 2 instead of 1"),
        ([claim("a", "all")], "claims of ResourceClaimTemplate all: 1 instead of 0"),
    ],
)
def test_a_pod_claims_no_more_than_its_share_holds(claims: list[Raw], want: str) -> None:
    assert group_workload.excess_requests(spec_of(*claims), {"spec": spec_of(claim("a", "h200"))}) == want


# --- plans ------------------------------------------------------------------------------------------------------------


def planned(gpus: int, *, pods: Raw = NAMED, claims: tuple[Raw, ...] = (claim("a", "one-gpu"),), **spec: Any) -> Raw:
    """The plan for two workers where east has a quota of cpu and of the devices, which no node shows."""
    member = make_member("east", 8, pods=pods, **spec)
    rows = [{"name": name, "nominalQuota": str(amount)} for name, amount in {"cpu": 8, GPU: gpus}.items()]
    groups = [{"coveredResources": ["cpu", GPU], "flavors": [{"name": "any", "resources": rows}]}]
    member.cluster_queues.replace([builders.make_cluster_queue(8, resourceGroups=groups)])
    sight = Sight({"east": 8})
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("east", pods=pods)])
    sight.members["east"] = member
    sight.fleet.caches()["east"] = member
    group = make_group(2)
    group["template"]["spec"]["resourceClaims"] = [*claims]
    return dict(asyncio.run(sight.preview.preview_plan(make_ray_job(group), builders.NAMESPACE, builders.START)))


HERE = {"resourceClaimTemplates": [{**ONE, "namespaces": [builders.NAMESPACE]}]}


@pytest.mark.parametrize(
    ("gpus", "claims", "fits"),
    [
        pytest.param(2, 1, True, id="quota for both workers"),
        pytest.param(1, 1, False, id="quota for one worker"),
        pytest.param(3, 2, False, id="two claims of each worker"),
        pytest.param(4, 2, True, id="quota for two claims of each"),
    ],
)
def test_a_plan_counts_the_claims(gpus: int, claims: int, fits: bool) -> None:
    made = planned(gpus, pods=HERE, claims=tuple(claim(f"c{index}", "one-gpu") for index in range(claims)))
    (east,) = made["clusters"]
    assert made["fits"] is fits, made
    assert (f"{GPU} in flavor any: {gpus} free of {gpus}, one worker needs {claims}" in east["reason"]) is not fits
    assert GPU in {row["resource"] for row in east["quota"]}


def test_a_plan_has_the_price_of_the_claims() -> None:
    made = planned(2, pods=HERE, pricePerHour={"cpu": "0", "memory": "0", GPU: "2.10"})
    assert made["clusters"][0]["pricePerHour"] == "4.20"


# --- what Kueue answers -----------------------------------------------------------------------------------------------

KEY, COVERED = (builders.NAMESPACE, "team-a"), frozenset({"cpu", GPU})


def answered(usage: Raw) -> kueue_answers.QueueAnswers:
    """What an admission of a share of one worker with one claim teaches."""
    target = mapped(resourceClaimTemplates=[{**ONE, "namespaces": [KEY[0]]}])
    share = group_workload.build_workload(target, KEY[0], [("w", 1, {"spec": spec_of(claim("a", "one-gpu"))})], "a")
    (podset,) = share["spec"]["podSets"]
    assignment = {"name": podset["name"], "count": 1, "flavors": dict.fromkeys(usage, "any"), "resourceUsage": usage}
    admission = {"clusterQueue": "team-a", "podSetAssignments": [assignment]}
    status = {"admission": admission, "conditions": [builders.make_condition(names.QUOTA_RESERVED)]}
    answers = kueue_answers.record_answer({}, KEY, COVERED, {**share, "status": status}, 0)
    return kueue_answers.answers_for(answers, KEY, COVERED)


@pytest.mark.parametrize(
    ("usage", "want"),
    [
        pytest.param({"cpu": "1", GPU: "1"}, {"cpu": 1000, GPU: 1}, id="as its WorkerCluster says"),
        pytest.param({"cpu": "1", GPU: "2"}, {"cpu": 1000, GPU: 2}, id="another number of devices"),
        pytest.param({"cpu": "1", "gpus": "1"}, {"cpu": 1000, "gpus": 1}, id="another resource"),
        pytest.param({"cpu": "1"}, {"cpu": 1000}, id="Kueue there counts no claims"),
    ],
)
def test_an_admission_corrects_what_the_worker_cluster_says(usage: Raw, want: Resources) -> None:
    known = answered(usage)
    assert known.counted({"cpu": 1000, GPU: 1, "pods": 1}) == {**want, "pods": 1}
    assert known.counted({"cpu": 1000, "pods": 1}) == {"cpu": 1000, "pods": 1}, "a pod without claims is as it was"
