"""A RayJob that is not submitted yet becomes the podsets that Kueue would make, or a message that names the field."""

import pytest

from adapter import names
from adapter.objects import job_manifest
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import Raw
from tests.unit.builders import NAMESPACE
from tests.unit.stores import make_group, make_ray_job, make_template


def counts(raw: Raw) -> dict[str, int]:
    return {podset.name: podset.count for podset in job_manifest.parse(raw, NAMESPACE).podsets}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(make_ray_job(), {"head": 1, "workers": 4}, id="a RayJob's submitter is no podset of a plan"),
        pytest.param(make_ray_job(kind="RayCluster"), {"head": 1, "workers": 4}, id="a RayCluster has no submitter"),
        pytest.param(
            make_ray_job(submissionMode="SidecarMode"),
            {"head": 1, "workers": 4},
            id="a sidecar submitter is in the head's pod",
        ),
        pytest.param(
            make_ray_job(make_group(2, name="Big-GPU")),
            {"head": 1, "big-gpu": 2},
            id="podsets are lower case",
        ),
        pytest.param(make_ray_job(make_group(3, numOfHosts=4)), {"head": 1, "workers": 12}, id="hosts multiply"),
        pytest.param(
            make_ray_job(make_group(3, numOfHosts=0)),
            {"head": 1, "workers": 3},
            id="no hosts, one host",
        ),
        pytest.param(
            make_ray_job(make_group(None, minReplicas=5)),
            {"head": 1, "workers": 0},
            id="only replicas count, and the CRD's default is none",
        ),
        pytest.param(
            make_ray_job(make_group(1, name="a"), make_group(2, name="b")),
            {"head": 1, "a": 1, "b": 2},
            id="several groups",
        ),
    ],
)
def test_podsets(raw: Raw, want: dict[str, int]) -> None:
    assert counts(raw) == want


def test_queue_and_priority_class_are_read_from_labels() -> None:
    raw = make_ray_job(queue="gold")
    raw["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "urgent"
    asked = job_manifest.parse(raw, NAMESPACE)
    assert (asked.queue, asked.priority_class, asked.namespace, str(asked)) == (
        "gold",
        "urgent",
        NAMESPACE,
        "RayJob train",
    )


def test_templates_are_read_unchanged() -> None:
    (_, worker) = job_manifest.parse(make_ray_job(make_group(1, cpu="3")), NAMESPACE).podsets
    assert worker.template == make_template("3")


def _without(*path: str) -> Raw:
    raw = make_ray_job()
    holder = raw
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return raw


GROUPS = "RayJob train: spec.rayClusterSpec.workerGroupSpecs"
ADD = (
    ": Kueue's webhooks reject a RayJob in a queue without them; add each line there, or, if its queue has the label "
    "rayspan.dev/job-defaults, use the output of `kubectl create --dry-run=server -o yaml`."
)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (None, "A plan is made for RayJob or RayCluster of ray.io, found no object."),
        ([1], "A plan is made for RayJob or RayCluster of ray.io, found no object."),
        (
            {"apiVersion": "batch/v1", "kind": "Job"},
            "A plan is made for RayJob or RayCluster of ray.io, found batch/v1 Job.",
        ),
        (
            make_ray_job() | {"apiVersion": "example.com/v1"},
            "A plan is made for RayJob or RayCluster of ray.io, found example.com/v1 RayJob.",
        ),
        (_without("metadata", "name"), "RayJob: metadata.name is missing; give it one."),
        (make_ray_job() | {"metadata": "x"}, "RayJob: metadata is 'x': it must be an object."),
        (make_ray_job() | {"spec": 7}, "RayJob train: spec is '7': it must be an object."),
        (
            _without("spec", "rayClusterSpec"),
            "RayJob train: spec.rayClusterSpec is missing; define the job's workers there.",
        ),
        (
            _without("spec", "shutdownAfterJobFinishes"),
            f"RayJob train lacks shutdownAfterJobFinishes: true in spec{ADD}",
        ),
        (
            make_ray_job(shutdownAfterJobFinishes=False),
            f"RayJob train lacks shutdownAfterJobFinishes: true in spec{ADD}",
        ),
        (
            _without("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams"),
            f"RayJob train lacks rayStartParams: {{}} in headGroupSpec of spec.rayClusterSpec{ADD}",
        ),
        (
            make_ray_job(make_group(1), make_group(1, name="b", rayStartParams=None), kind="RayCluster"),
            (
                f"RayCluster train lacks rayStartParams: {{}} in "
                "workerGroupSpecs[1] of "
                f"spec{ADD.replace('RayJob', 'RayCluster')}"
            ),
        ),
        (
            make_ray_job(clusterSelector={"a": "b"}),
            "RayJob train: spec.clusterSelector names an existing RayCluster: Kueue does not queue such a job.",
        ),
        (make_ray_job(kind="RayCluster", workerGroupSpecs={}), None),
        (
            make_ray_job(kind="RayCluster", workerGroupSpecs="x"),
            "RayCluster train: spec.workerGroupSpecs is 'x': it must be a list.",
        ),
        (make_ray_job("x"), f"{GROUPS}[0] is 'x': it must be an object."),  # type: ignore[arg-type]
        (make_ray_job(make_group(1, name="")), f"{GROUPS}[0].groupName is missing; name the group."),
        (make_ray_job(make_group(1) | {"replicas": "3"}), f"{GROUPS}[0].replicas is '3': it must be a whole number."),
        (
            make_ray_job(make_group(1) | {"replicas": True}),
            f"{GROUPS}[0].replicas is 'True': it must be a whole number.",
        ),
        (make_ray_job(make_group(1) | {"replicas": -1}), f"{GROUPS}[0].replicas is -1: it must be 0 or more."),
        (
            make_ray_job(make_group(2**30, numOfHosts=2)),
            f"{GROUPS}[0].replicas requests 2147483648 workers, more than a 32-bit integer can count; use fewer.",
        ),
        (
            make_ray_job(make_group(10**4_000, numOfHosts=10**4_000)),
            f"{GROUPS}[0].minReplicas is not a 32-bit integer; use a smaller number.",
        ),
        (
            make_ray_job(make_group(1) | {"template": {"spec": {}}}),
            f"{GROUPS}[0].template.spec.containers is empty; add the Ray container.",
        ),
        (
            make_ray_job(make_group(1, cpu="much")),
            (
                f"{GROUPS}[0].template.spec: its containers' resources cannot be "
                "read: 'much' is not a quantity such as 500m, 2 or 1.5Gi."
            ),
        ),
        (
            make_ray_job(make_group(1, name="head")),
            f"{GROUPS}: the name head is used twice; give each group its own name.",
        ),
        (
            make_ray_job(make_group(1, name="Submitter")),
            f"{GROUPS}: the name submitter is used twice; give each group its own name.",
        ),
        (make_ray_job(make_group(1, name="submitter"), submissionMode="HTTPMode"), None),
        (
            make_ray_job(make_group(1) | {"minReplicas": "1"}),
            f"{GROUPS}[0].minReplicas is '1': it must be a whole number.",
        ),
        (make_ray_job(make_group(1) | {"maxReplicas": -1}), f"{GROUPS}[0].maxReplicas is -1: it must be 0 or more."),
        (
            make_ray_job(make_group(1, name="a"), make_group(1, name="A")),
            f"{GROUPS}: the name a is used twice; give each group its own name.",
        ),
        (make_ray_job(*(make_group(1, name=f"g{n}") for n in range(16))), None),
        (
            make_ray_job(*(make_group(1, name=f"g{n}") for n in range(17))),
            f"{GROUPS}: 19 podsets with head and submitter, Kueue accepts at most 18; use fewer groups.",
        ),
    ],
)
def test_an_invalid_job_is_rejected_with_a_message(raw: object, sentence: str | None) -> None:
    if sentence is None:
        job_manifest.parse(raw, NAMESPACE)
        return
    with pytest.raises(InvalidJob) as refusal:
        job_manifest.parse(raw, NAMESPACE)
    assert str(refusal.value) == sentence


def test_a_priority_class_has_the_value_that_another_job_got() -> None:
    def given(name: str, priority: int, kind: str = "WorkloadPriorityClass") -> Raw:
        return {"spec": {"priority": priority, "priorityClassRef": {"kind": kind, "name": name}}}

    known = [{"spec": {}}, given("low", 1), given("high", 5, kind="PriorityClass"), given("high", 9)]
    assert job_manifest.observed_priority("high", known) == 9
    assert job_manifest.observed_priority("unknown", known) is None
