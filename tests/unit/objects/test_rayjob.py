"""A RayJob that is not submitted yet becomes the podsets that Kueue would make, or a message that names the field."""

import pytest

from adapter import names
from adapter.objects import rayjob
from adapter.objects.rayjob import InvalidJob
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from tests.unit.builders import NAMESPACE, make_workload
from tests.unit.stores import make_group, make_ray_job, make_template


def counts(raw: Raw) -> dict[str, int]:
    return {podset.name: podset.count for podset in rayjob.parse(raw, NAMESPACE).podsets}


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


@pytest.mark.parametrize(
    ("kind", "mode", "podsets", "want"),
    [
        pytest.param("RayJob", "K8sJobMode", "head a b submitter", "a b", id="head and submitter are no worker groups"),
        pytest.param("RayJob", "", "head a submitter", "a", id="a RayJob has a submitter by default"),
        pytest.param("RayJob", "HTTPMode", "head submitter", "submitter",
            id="a group called submitter, of a job without a submitter"),
        pytest.param("RayJob", "SidecarMode", "head submitter a", "submitter a",
            id="a group called submitter, of a job with a sidecar submitter"),
        pytest.param("RayJob", "K8sJobMode", "head submitter a", "submitter a",
            id="a group called submitter, of a job whose mode changed before Kueue counts again"),
        pytest.param("RayCluster", "", "head a submitter", "a submitter", id="a cluster has no submitter"),
        pytest.param("RayCluster", "", "other head a", "head a",
            id="the first podset is the head, whatever the names of the others"),
        pytest.param("RayJob", None, "head a submitter", "a submitter", id="the job is unknown"),
        pytest.param("RayJob", "K8sJobMode", "", "", id="no podsets"),
        pytest.param("Job", "", "main a", "", id="a job of another kind has none"),
        pytest.param("", "", "main a", "", id="a Workload without an owner"),
    ],
)  # fmt: skip
def test_which_podsets_are_worker_groups(kind: str, mode: str | None, podsets: str, want: str) -> None:
    raw = make_workload(owner=kind)
    raw["spec"]["podSets"] = [{"name": name, "count": 1} for name in podsets.split()]
    job: Raw = {} if mode is None else {"spec": {"submissionMode": mode} if mode else {}}
    # `kind` is set even if the spec is empty.
    found = rayjob.worker_podsets(
        parse_workload(raw), rayjob.read_job(kind, job if mode is None else {"kind": kind, **job})
    )
    assert " ".join(podset.name for podset in found) == want


def test_queue_and_priority_class_are_read_from_labels() -> None:
    raw = make_ray_job(queue="gold")
    raw["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = "urgent"
    asked = rayjob.parse(raw, NAMESPACE)
    assert (asked.queue, asked.priority_class, asked.namespace, str(asked)) == (
        "gold",
        "urgent",
        NAMESPACE,
        "RayJob train",
    )


def test_templates_are_read_unchanged() -> None:
    (_, worker) = rayjob.parse(make_ray_job(make_group(1, cpu="3")), NAMESPACE).podsets
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
        rayjob.parse(raw, NAMESPACE)
        return
    with pytest.raises(InvalidJob) as refusal:
        rayjob.parse(raw, NAMESPACE)
    assert str(refusal.value) == sentence


def test_a_priority_class_has_the_value_that_another_job_got() -> None:
    def given(name: str, priority: int, kind: str = "WorkloadPriorityClass") -> Raw:
        return {"spec": {"priority": priority, "priorityClassRef": {"kind": kind, "name": name}}}

    known = [{"spec": {}}, given("low", 1), given("high", 5, kind="PriorityClass"), given("high", 9)]
    assert rayjob.observed_priority("high", known) == 9
    assert rayjob.observed_priority("unknown", known) is None


MALFORMED: Raw = {
    "metadata": {"name": "x"},
    "spec": {
        "workerGroupSpecs": [1, {"replicas": "x", "numOfHosts": True, "labels": []}],
        "autoscalerOptions": {"env": 1},
    },
    "status": {"state": 7},
}


@pytest.mark.parametrize("kind", names.RAY_KINDS)
@pytest.mark.parametrize("spec", [MALFORMED["spec"], {"rayClusterSpec": MALFORMED["spec"]}, None, "text"])
def test_a_malformed_job_is_read_without_an_error(kind: str, spec: object) -> None:
    job = rayjob.read_job(kind, {**MALFORMED, "spec": spec})
    assert (job.is_known, job.status.state, job.cluster.desired_workers({""})) == (True, "", 0)
    assert rayjob.autoscaler_env(job) is None


def test_an_unknown_job_keeps_its_kind() -> None:
    job = rayjob.UNKNOWN_JOBS["RayJob"]
    assert (job, job.kind, job.is_known, job.has_submitter) == (rayjob.read_ray_job({}), "RayJob", False, False)
