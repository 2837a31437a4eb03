"""The plan preview of a job gives the real plan's answer or a message, for any input, and changes nothing."""

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import names
from adapter.actions import Plan
from adapter.cli import plan_table
from adapter.objects import job_manifest
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.placement import Exclusion
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from tests.unit import builders
from tests.unit.builders import (
    NAMESPACE,
    START,
    make_cluster_queue,
    make_condition,
    make_policy,
    make_worker_cluster,
    make_workload,
)
from tests.unit.stores import Sight, fill, make_group, make_local_queue, make_member, make_ray_job, make_template

REACHED = make_condition(names.REACHABLE)


def asked(sight: Sight, raw: object) -> Raw:
    return asyncio.run(sight.preview.preview_plan(raw, NAMESPACE, START))


def test_a_preview_names_clusters_workers_and_reasons() -> None:
    sight = Sight({"east": 2, "west": 9})
    answer = asked(sight, make_ray_job())
    assert (answer["fits"], answer["sentence"]) == (True, "2 of 4 workers to east, 2 to west.")
    assert [(one["cluster"], one["asked"], one["chosen"]) for one in answer["clusters"]] == [
        ("east", 1, 2),
        ("west", 2, 2),
    ]
    assert answer["clusters"][0]["scarcest"] == {
        "flavor": "any", "resource": "cpu", "nominal": "2", "used": "0", "free": "2", "ever": "2"
    }  # fmt: skip
    assert answer["managerClusterQueue"] == "all" and answer["policy"] == "default"


def test_a_worker_group_may_have_the_name_of_the_submitter() -> None:
    """Of a job that has no submitter, and of a cluster; what stands under their name already tells nothing of them."""
    group = make_group(3, name="submitter")
    for raw in (make_ray_job(group, kind="RayCluster"), make_ray_job(group, submissionMode="HTTPMode")):
        sight = Sight({"east": 4})
        fill(sight.manager.ray_jobs, {**make_ray_job(), "metadata": {**raw["metadata"], "uid": "uid-of-another"}})
        assert asked(sight, raw)["sentence"] == "3 of 3 workers to east."


def test_an_autoscaled_job_without_the_annotation_is_rejected() -> None:
    answer = asked(Sight({"east": 4}), make_ray_job(kind="RayCluster", enableInTreeAutoscaling=True))
    assert not answer["fits"] and "spec.enableInTreeAutoscaling is true, and " in answer["sentence"]


def test_the_rejection_of_a_rayservice_names_its_fields() -> None:
    """A question has the RayCluster of the RayService, whose spec the user has in another field."""
    group = make_group(1, template=make_template("1", hostNetwork=True))
    raw = make_ray_job(group, kind="RayCluster", enableInTreeAutoscaling=True)
    preview = Sight({"east": 4}).preview
    answer = asyncio.run(preview.preview_plan(raw, NAMESPACE, START, of_service=True))
    sentences = [answer["sentence"], *answer["notes"]]
    assert [sentence.partition(" is ")[0] for sentence in sentences] == [
        f"RayService {builders.JOB}: spec.rayClusterConfig.enableInTreeAutoscaling",
        f"RayService {builders.JOB}: worker group workers: spec.hostNetwork",
    ]
    assert names.JOB_DEFAULTS_LABEL in sentences[0]
    assert asked(Sight({"east": 4}), raw)["sentence"].startswith(
        f"RayCluster {builders.JOB}: spec.enableInTreeAutoscaling is "
    )


def test_an_annotated_elastic_job_is_planned_at_its_start() -> None:
    job = make_ray_job(make_group(3, maxReplicas=9), kind="RayCluster", enableInTreeAutoscaling=True)
    job["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    answer = asked(Sight({"east": 2, "west": 2}), job)
    assert (answer["fits"], answer["sentence"]) == (True, "2 of 3 workers to east, 1 to west.")


LOCATED = pytest.mark.parametrize(
    ("field", "label", "annotation"),
    [
        ("zone", names.RAY_ZONE_LABEL, names.ZONE_ANNOTATION),
        ("region", names.RAY_REGION_LABEL, names.REGION_ANNOTATION),
    ],
)


def located_sight(cores: Mapping[str, int]) -> Sight:
    """Each cluster is in the zone and the region of its own name."""
    sight = Sight(cores)
    for name, amount in cores.items():
        sight.members[name].spec = make_member(name, amount, region=name).spec
    return sight


@LOCATED
@pytest.mark.parametrize("by", ["label", "annotation"])
@pytest.mark.parametrize("submitted", [False, True])
def test_a_group_that_names_a_zone_or_region_goes_there(
    field: str, label: str, annotation: str, by: str, submitted: bool
) -> None:
    """As a file, and as a job: Kueue's podset has nothing of the group's labels, and its name is lower case."""
    annotated = {**make_template("1"), "metadata": {"annotations": {annotation: "west"}}}
    required = {"labels": {label: "west"}} if by == "label" else {"template": annotated}
    sight, job = (
        located_sight({"east": 9, "west": 2}),
        make_ray_job(make_group(1), make_group(2, name="Near", **required)),
    )
    if not submitted:
        answer = asked(sight, job)
        assert (answer["sentence"], answer["groups"][1][field]) == ("1 of 3 workers to east, 2 to west.", "west")
        lacks = f"worker group near requires {field} west, and this cluster is in {field} east"
        assert lacks in answer["clusters"][0]["reason"]
        assert [cluster[field] for cluster in answer["clusters"]] == ["east", "west"]
        return
    raw = make_workload(groups={"workers": 1, "near": 2})
    for podset in raw["spec"]["podSets"][1:]:
        podset["template"] = annotated if by == "annotation" and podset["name"] == "near" else make_template("1")
    fill(sight.manager.workloads, raw)
    fill(sight.manager.ray_jobs, job)
    body, *_ = asyncio.run(sight.planning.plan_round(Plan(parse_workload(raw), None, ()), START))
    assert body["spec"]["explanation"] == "1 of 3 workers to east, 2 to west."


@pytest.mark.parametrize("submitted", [False, True])
def test_the_hosts_of_a_replica_go_to_one_cluster(submitted: bool) -> None:
    """As a file, and as a job: Kueue's podset has nothing of the hosts."""
    sight, job = Sight({"east": 3, "west": 3}), make_ray_job(make_group(2, name="Tpu", numOfHosts=2))
    if not submitted:
        assert asked(sight, job)["sentence"] == "2 of 4 workers to east, 2 to west."
        said = asked(Sight({"east": 3}), job)["sentence"]
        assert "2 fit now" in said and "one worker needs 1, and each replica needs 2" in said
        return
    raw = make_workload(groups={"tpu": 4})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    fill(sight.manager.workloads, raw)
    fill(sight.manager.ray_jobs, job)
    body, *_ = asyncio.run(sight.planning.plan_round(Plan(parse_workload(raw), None, ()), START))
    assert [share["groups"][0]["count"] for share in body["spec"]["shares"]] == [2, 2]
    assert [share["groups"][0]["hosts"] for share in body["spec"]["shares"]] == [2, 2]


@LOCATED
def test_two_zones_or_regions_of_one_group_are_refused(field: str, label: str, annotation: str) -> None:
    """Ray's autoscaler would take its workers for being where the label says."""
    annotated = {**make_template("1"), "metadata": {"annotations": {annotation: "east"}}}
    east, west = (make_ray_job(make_group(1, labels={label: at}, template=annotated)) for at in ("east", "west"))
    assert asked(located_sight({"east": 9}), east)["fits"]
    assert asked(located_sight({"east": 9}), west)["sentence"] == (
        f"RayJob train: worker group workers: its labels have ray.io/availability-{field}: west, but the annotations "
        f"of its template have rayspan.dev/{field}: east; remove the annotation."
    )


def test_a_group_that_names_an_unknown_region_waits() -> None:
    answer = asked(Sight({"east": 9}), make_ray_job(make_group(1, labels={names.RAY_REGION_LABEL: "atlantis"})))
    assert not answer["fits"] and answer["sentence"].startswith(
        "1 worker needed at once, 0 fit now: east has capacity for 0 (worker group workers requires region atlantis, "
        "and this cluster has no region)."
    )


def test_a_group_without_workers_needs_no_slot() -> None:
    answer = asked(Sight({"east": 4}), make_ray_job(make_group(2), make_group(0, name="spare")))
    assert (answer["sentence"], [group["name"] for group in answer["groups"]]) == (
        "2 of 2 workers to east.",
        ["workers"],
    )


def test_a_job_that_does_not_fit_says_what_is_short() -> None:
    answer = asked(Sight({"east": 1, "west": 2}), make_ray_job())
    assert not answer["fits"] and answer["never"]
    assert answer["sentence"].startswith(
        "4 workers needed at once, 3 fit now: east has capacity for 1 (cpu in flavor any: "
    )


def test_a_preview_equals_the_real_plan() -> None:
    """The same workers through the real planning, as a Workload that holds quota, and through a question."""
    sight = Sight({"east": 3, "west": 9}, strategy="Spread")
    raw = make_workload(groups={"workers": 4})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    fill(sight.manager.workloads, raw)
    planning = sight.planning
    body, _, _, _ = asyncio.run(planning.plan_round(Plan(parse_workload(raw), None, ()), START))
    fill(sight.manager.workloads)
    answer = asked(sight, make_ray_job())
    assert answer["sentence"] == body["spec"]["explanation"] == "2 of 4 workers to east, 2 to west."
    same = ("cluster", "nominal", "borrow", "ever", "chosen", "reason")
    assert [{key: one[key] for key in same} for one in answer["clusters"]] == body["spec"]["considered"]


def test_a_real_plan_excludes_clusters_that_did_not_admit_in_time() -> None:
    """A question knows of no such cluster: its job was never refused one."""
    sight = Sight({"east": 9, "west": 9})
    raw = make_workload(groups={"workers": 4})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    planning = sight.planning
    late = Exclusion("east", builders.at(60), "did not admit in time")
    body, _, _, _ = asyncio.run(planning.plan_round(Plan(parse_workload(raw), None, (late,)), START))
    assert body["spec"]["explanation"] == "4 of 4 workers to west; east passed over: did not admit in time."
    assert asked(sight, make_ray_job())["sentence"] == "4 of 4 workers to east."


def test_gangs_that_wait_longer_come_first() -> None:
    """A gang that is about to be planned takes its share before the question is answered."""
    sight = Sight({"east": 4})
    raw = make_workload(groups={"workers": 3})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    raw["metadata"]["creationTimestamp"] = builders.stamp(-60)
    fill(sight.manager.workloads, raw)
    answer = asked(sight, make_ray_job(make_group(2)))
    assert not answer["fits"] and "2 workers needed at once, 1 fit now" in answer["sentence"]
    assert answer["clusters"][0]["scarcest"]["used"] == "3"


def test_a_known_priority_precedes_age() -> None:
    sight = Sight({"east": 4})
    raw = make_workload(groups={"workers": 3})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    raw["metadata"]["creationTimestamp"] = builders.stamp(-60)
    shown = make_workload(name="other", reserved=None)
    shown["spec"] |= {"priority": 7, "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "urgent"}}
    fill(sight.manager.workloads, raw, shown)
    job = make_ray_job(make_group(2))
    job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "urgent"
    assert asked(sight, job)["fits"]
    job["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "unheard-of"
    answer = asked(sight, job)
    assert not answer["fits"]
    assert answer["notes"] == [
        "No job of WorkloadPriorityClass unheard-of is known yet, so its priority is taken for 0."
    ]


def test_a_check_on_some_flavors_covers_the_worker_groups() -> None:
    sight = Sight({"east": 9})
    checks: Raw = {"admissionChecksStrategy": {"admissionChecks": [{"name": builders.CHECK, "onFlavors": ["any"]}]}}
    fill(sight.manager.cluster_queues, make_cluster_queue(9, name="all", **checks))
    assert asked(sight, make_ray_job())["sentence"] == "4 of 4 workers to east."


def test_prices_are_those_of_the_chosen_workers() -> None:
    sight = Sight({"east": 2, "west": 9})
    sight.members["east"].spec = make_member("east", 2, pricePerHour={"cpu": "0.12"}).spec
    answer = asked(sight, make_ray_job())
    assert [one["pricePerHour"] for one in answer["clusters"]] == ["0.24", None]
    assert (answer["pricePerHour"], answer["withoutPrice"]) == ("0.24", ["west"])


def test_reclaimed_quota_is_reported() -> None:
    sight = Sight({"east": 2})
    mine = make_cluster_queue(2, cohortName="all", preemption={"reclaimWithinCohort": "Any"})
    fill(sight.members["east"].cluster_queues, mine, make_cluster_queue(0, used=2, cohortName="all", name="team-b"))
    answer = asked(sight, make_ray_job(make_group(2)))
    assert answer["sentence"] == "2 of 2 workers to east; in east by taking back quota that others borrowed."
    assert [(one["asked"], one["preempts"]) for one in answer["clusters"]] == [(1, True)]
    assert "others must be preempted" in plan_table.render(answer)


def test_without_workers_there_is_nothing_to_place() -> None:
    answer = asked(Sight({"east": 0}), make_ray_job(make_group(0)))
    assert answer["fits"] and answer["sentence"] == "No worker of this job needs to be placed."


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"cordoned": True}, "it is cordoned"),
        ({"draining": True}, "it is draining"),
        ({"cordoned": True, "draining": True}, "it is draining"),
    ],
)
def test_a_cordoned_or_draining_cluster_is_passed_over(spec: dict[str, bool], why: str) -> None:
    sight = Sight({"east": 9, "west": 9})
    sight.members["east"].spec = make_member("east", 9, **spec).spec
    answer = asked(sight, make_ray_job())
    assert answer["sentence"] == f"4 of 4 workers to west; east passed over: {why}."
    assert [one["asked"] for one in answer["clusters"]] == [1, None]
    assert [one["cluster"] for one in answer["clusters"]] == ["west", "east"]


def test_a_cluster_that_the_job_moves_away_from_is_passed_over() -> None:
    sight, raw = Sight({"east": 9, "west": 9}), make_ray_job()
    fill(sight.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west"))
    raw["metadata"]["annotations"] = {names.MOVE_FROM_ANNOTATION: "east,north"}
    answer = asked(sight, raw)
    assert answer["sentence"] == "4 of 4 workers to west; east passed over: the job moves away from it."
    assert [note for note in answer["notes"] if names.MOVE_FROM_ANNOTATION in note] == [
        "RayJob train: annotation rayspan.dev/move-from names a WorkerCluster that does not exist (north), and is "
        "ignored in that; correct the name, or remove it."
    ]


@pytest.mark.parametrize(
    ("policy", "conditions", "sentence"),
    [
        ({}, [], "4 of 4 workers to east."),
        ({"requireReachable": False}, [{"status": "False"}], "4 of 4 workers to east."),
        ({"requireReachable": True}, [{"status": "True"}], "4 of 4 workers to east."),
        ({"requireReachable": True}, [], "4 of 4 workers to west; east passed over: no preflight has tested it, and "),
        (
            {"requireReachable": True},
            [{"status": "False", "reason": "NoRoute"}],
            ("4 of 4 workers to west; east passed over: the last preflight found it unreachable (NoRoute): "),
        ),
    ],
)
def test_a_policy_may_pass_over_clusters_without_a_successful_preflight(
    policy: Raw, conditions: list[Raw], sentence: str
) -> None:
    sight = Sight({"east": 9, "west": 9}, **policy)
    told = {"east": [{"type": "Reachable", **one} for one in conditions], "west": [REACHED]}
    sight.manager.worker_clusters.replace([make_worker_cluster(name, conditions=found) for name, found in told.items()])
    assert asked(sight, make_ray_job())["sentence"].startswith(sentence)


def test_why_a_cluster_cannot_be_used_comes_before_what_a_policy_requires() -> None:
    sight = Sight({"east": 9, "west": 9}, requireReachable=True)
    sight.members["east"].spec = make_member("east", 9, cordoned=True).spec
    sight.manager.worker_clusters.replace(
        [make_worker_cluster("east"), make_worker_cluster("west", conditions=[REACHED])]
    )
    assert asked(sight, make_ray_job())["sentence"] == "4 of 4 workers to west; east passed over: it is cordoned."


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (make_template("1", hostNetwork=True), "RayJob train: worker group workers: spec.hostNetwork is true: "),
        (make_template(""), "RayJob train: worker group workers: spec.containers have no resources.requests"),
    ],
)
def test_a_rejection_is_the_answer(template: Raw, words: str) -> None:
    answer = asked(Sight({"east": 9}), make_ray_job(make_group(1) | {"template": template}))
    assert not answer["fits"] and answer["sentence"].startswith(words)
    assert "Delete the job" not in answer["sentence"]
    assert plan_table.render(answer).endswith(f"Does not fit: {answer['sentence']}\n")


def test_other_rejections_are_notes() -> None:
    volumes = [{"name": "data", "hostPath": {"path": "/data"}}]
    group = make_group(1) | {"template": make_template("1", hostNetwork=True, volumes=volumes)}
    answer = asked(Sight({"east": 9}, gang="BestEffort", minWorkers=1), make_ray_job(group))
    assert [one.partition(": no ")[0].partition(" starts")[0] for one in answer["notes"]] == [
        "RayJob train: worker group workers: spec.volumes[data].hostPath is /data",
        "RayJob train: its spec.submissionMode K8sJobMode",
    ]
    assert plan_table.render(answer).endswith("\n".join([answer["sentence"], *answer["notes"], ""]))


def test_a_job_that_waits_for_all_pods_gets_no_part() -> None:
    sight = Sight({"east": 9}, gang="BestEffort", minWorkers=2)
    assert (
        "spec.submissionMode K8sJobMode starts the job only when every worker is ready"
        in asked(sight, make_ray_job())["sentence"]
    )
    assert asked(sight, make_ray_job(submissionMode="SidecarMode"))["fits"]


def test_a_problem_of_all_jobs_is_the_answer() -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.policies, make_policy(gang="BestEffort"))
    assert asked(sight, make_ray_job())["sentence"].startswith("DispatchPolicy default: spec.minWorkers: ")
    fill(sight.manager.policies)
    assert "names DispatchPolicy default, which does not exist" in asked(sight, make_ray_job())["sentence"]
    sight = Sight({"east": 9})
    fill(sight.manager.gate_policies)
    assert asked(sight, make_ray_job())["sentence"].startswith("MutatingAdmissionPolicy rayspan-gate is missing")
    sight = Sight({"east": 9})
    fill(sight.manager.local_queues, make_local_queue("all") | {"spec": {"clusterQueue": "all", "stopPolicy": "Hold"}})
    assert (
        asked(sight, make_ray_job())["sentence"]
        == "In the manager cluster, LocalQueue team-a is stopped (stopPolicy Hold)."
    )


@pytest.mark.parametrize(
    ("queue", "sentence"),
    [
        (None, "RayJob train: metadata.labels has no kueue.x-k8s.io/queue-name; name a LocalQueue of namespace demo."),
        (
            "gold",
            "RayJob train: namespace demo has no LocalQueue gold, it has team-a; name one in metadata.labels "
            "kueue.x-k8s.io/queue-name.",
        ),
    ],
)
def test_a_missing_queue(queue: str | None, sentence: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        asked(Sight({"east": 9}), make_ray_job(queue=queue))
    assert str(refusal.value) == sentence


def test_the_default_queue_is_taken_where_there_is_one() -> None:
    sight = Sight({"east": 9})
    queue = make_local_queue("all")
    queue["metadata"]["name"] = "default"
    fill(sight.manager.local_queues, queue)
    assert asked(sight, make_ray_job(queue=None))["queue"] == "default"


def test_a_queue_without_our_check_is_not_ours() -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.cluster_queues, make_cluster_queue(9, name="all"))
    with pytest.raises(
        InvalidJob, match=r"ClusterQueue all of LocalQueue team-a has no AdmissionCheck of rayspan.dev/dispatch"
    ):
        asked(sight, make_ray_job())


def test_a_queue_without_a_cluster_queue() -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.cluster_queues)
    with pytest.raises(InvalidJob, match="LocalQueue team-a leads to ClusterQueue all, which does not exist"):
        asked(sight, make_ray_job())


def test_a_preview_changes_no_state() -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.workloads, make_workload())
    stores = {
        name: copy.deepcopy(list(value)) for name, value in vars(sight.manager).items() if hasattr(value, "synced")
    }
    memory = copy.deepcopy(vars(sight.memory))
    for job in (make_ray_job(), make_ray_job(make_group(99)), make_ray_job(queue="team-a")):
        asked(sight, job)
    assert vars(sight.memory) == memory
    assert {name: list(value) for name, value in vars(sight.manager).items() if hasattr(value, "synced")} == stores


_SIGHT = Sight({"east": 3, "west": 3})
_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(below for key, part in inner for below in _paths(part, (*path, key)))]


_FULL = make_ray_job(
    make_group(
        2,
        template=make_template(
            "1",
            nodeSelector={"a": "b"},
            tolerations=[{"key": "a", "operator": "Exists"}],
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
            ]}}},
            initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}}],
            volumes=[{"name": "v", "emptyDir": {}}],
            overhead={"cpu": "1m"},
        )
        | {"metadata": {"labels": {"a": "b"}, "annotations": {names.ZONE_ANNOTATION: "east"}}},
    )
)  # fmt: skip


@settings(max_examples=4 * settings().max_examples)
@given(st.sampled_from(_paths(_FULL)), _JUNK)
def test_any_input_gets_an_answer_or_a_message(path: tuple[Any, ...], junk: Any) -> None:
    """One field of a valid job is replaced by nonsense: only InvalidJob is raised, and every answer is complete."""
    job = copy.deepcopy(_FULL)
    if path:
        holder = job
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = junk
    try:
        answer = asked(_SIGHT, job if path else junk)
    except InvalidJob as refusal:
        assert str(refusal).endswith(".") and len(str(refusal)) < 600
        return
    assert plan_table.render(answer).endswith("\n")


def test_too_deep_input_is_reported() -> None:
    deep: Raw = {}
    for _ in range(900):
        deep = {"a": deep}
    with pytest.raises(InvalidJob):
        asked(
            _SIGHT,
            make_ray_job(
                make_group(1) | {"template": make_template("1", affinity={"nodeAffinity": deep}, nodeSelector=7)}
            ),
        )
    assert job_manifest.parse(make_ray_job(make_group(1) | {"template": make_template("1", affinity=deep)}), NAMESPACE)
