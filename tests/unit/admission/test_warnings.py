"""Warnings at `kubectl apply`: all faults at once, and none about objects that are not ours to judge."""

import copy
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapter import names
from adapter.admission import job_validation, warnings
from adapter.admission.policy import PolicyObjects
from adapter.admission.warnings import JobWarnings, WarningContext
from adapter.objects import job_manifest
from adapter.objects.admissioncheck import read_check
from adapter.objects.queues import LocalQueue, read_cluster_queue, read_local_queue
from adapter.objects.rayjob import read_ray_job
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, Raw
from adapter.objects.workload import parse_workload
from tests.unit.builders import (
    CHECK,
    JOB,
    NAMESPACE,
    QUEUE,
    make_check,
    make_cluster_queue,
    make_policy,
    make_worker_cluster,
    make_workload,
)
from tests.unit.stores import make_group, make_ray_job, make_template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LISTS: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
WRITTEN = PolicyObjects({"default": make_policy(clusters=["east"])}, [make_worker_cluster("east")])
BAD = {"hostNetwork": True, "volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}


def local(cluster_queue: str) -> LocalQueue:
    return read_local_queue({"spec": {"clusterQueue": cluster_queue}})


def seen(local_queues: dict[str, str] | None = None, written: PolicyObjects = WRITTEN, **checks: Raw) -> WarningContext:
    """LocalQueues by their ClusterQueues, by default `team-a` with our check: `all` has the check, `here` has none."""
    there = {QUEUE: "all"} if local_queues is None else local_queues
    queues = map(read_cluster_queue, [make_cluster_queue(9, name="all", **LISTS), make_cluster_queue(9, name="here")])
    return WarningContext(
        {name: local(queue) for name, queue in there.items()},
        {queue.name: queue for queue in queues},
        {name: read_check(check) for name, check in {CHECK: make_check(), **checks}.items()},
        written,
    )


def job(*groups: dict[str, Any], kind: str = "RayJob", queue: str | None = QUEUE, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = make_ray_job(*groups, kind=kind, queue=queue, **spec)
    return found


def service(*groups: dict[str, Any], **spec: Any) -> Raw:
    made = job(*groups, kind="RayCluster")
    return {**made, "kind": "RayService", "spec": {"rayClusterConfig": made["spec"], **spec}}


def bad(kind: str = "RayJob") -> Raw:
    group = make_group(4, template=make_template("1", **BAD))
    return service(group) if kind == "RayService" else job(group, kind=kind)


# --- queues ----------------------------------------------------------------------------------------------------------

BOTH = {QUEUE: "all", "home": "here"}


@pytest.mark.parametrize(
    ("raw", "there", "want"),
    [
        pytest.param(
            job(queue=None), {QUEUE: "all"},
            "metadata.labels has no kueue.x-k8s.io/queue-name, so it waits in no queue, and its workers start in the "
            "manager cluster; for worker clusters name LocalQueue team-a of namespace demo.",
            id="no label",
        ),
        pytest.param(job(queue=None), {"home": "here"}, "", id="no label, where no queue dispatches"),
        pytest.param(job(queue=None), {}, "", id="no label, and no queue"),
        pytest.param(
            job(queue=None), {"default": "here", QUEUE: "all"},
            "ClusterQueue here of LocalQueue default has no AdmissionCheck of rayspan.dev/dispatch",
            id="a default queue without the check",
        ),
        pytest.param(
            job(queue="gold"), BOTH,
            "namespace demo has no LocalQueue gold, it has home, team-a, so it waits until there is one; name one in "
            "metadata.labels kueue.x-k8s.io/queue-name.",
            id="no such queue",
        ),
        pytest.param(
            job(queue="gold"), {}, "namespace demo has no LocalQueue gold, it has none, so it waits",
            id="no queue at all",
        ),
        pytest.param(
            job(queue="home"), BOTH,
            "ClusterQueue here of LocalQueue home has no AdmissionCheck of rayspan.dev/dispatch, so its workers run in "
            "the manager cluster; for worker clusters name LocalQueue team-a of namespace demo.",
            id="a queue without the check",
        ),
        pytest.param(job(queue="home"), {"home": "here"}, "", id="a queue without the check, where no queue has it"),
        pytest.param(
            job(), {QUEUE: "gone"}, "LocalQueue team-a leads to ClusterQueue gone, which does not exist",
            id="a queue that leads nowhere",
        ),
        pytest.param(bad(), {"home": "here", QUEUE: "here"}, "", id="a job that stays in the manager is not judged"),
    ],
)  # fmt: skip
def test_a_job_that_is_not_dispatched_is_warned(raw: Raw, there: dict[str, str], want: str) -> None:
    said = warnings.job_warnings(raw, seen(there), NOW)
    assert said.job_to_plan is None
    assert [one.startswith(f"RayJob {JOB}: {want}") for one in said.sentences] == ([True] if want else [])


def test_a_default_queue_with_the_check_dispatches_the_job() -> None:
    raw = job(queue=None)
    assert warnings.job_warnings(raw, seen({"default": "all"}), NOW) == JobWarnings(job_to_plan=raw)


# --- rejections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
def test_all_faults_are_reported_at_once(kind: str) -> None:
    said = warnings.job_warnings(bad(kind), seen(), NOW)
    assert said.job_to_plan is None
    assert list(said.sentences) == [
        f"{kind} train: worker group workers: spec.hostNetwork is true: a worker needs a pod IP of its own, which the "
        "other clusters can reach; remove it.",
        f"{kind} train: worker group workers: spec.volumes[data].hostPath is /data: no WorkerCluster of the policy "
        "names it for namespace demo; an administrator can add spec.pods.hostPaths: [{prefix: /data, namespaces: "
        "[demo]}] to WorkerCluster east, or use emptyDir or object storage.",
    ]


def test_the_first_warning_is_the_rejection_of_the_check() -> None:
    raw = bad()
    first = warnings.job_warnings(raw, seen(), NOW).sentences[0]
    work = parse_workload(make_workload(owner="RayJob"))
    template = raw["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]
    groups = [p for p in work.podsets if p.name != names.HEAD]
    podsets = [type(groups[0])(groups[0].name, 1, template, frozenset())]
    assert (
        job_validation.workload_rejection(work, read_ray_job(raw), CHECK, podsets, None, [])
        == f"{first} {job_validation.RESUBMIT}"
    )


def test_a_job_without_faults_is_planned() -> None:
    raw = job()
    assert warnings.job_warnings(raw, seen(), NOW) == JobWarnings(job_to_plan=raw)


def test_the_workload_of_a_job_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs most of the time of a request, which the user waits for."""
    built: list[str] = []
    build = job_manifest.build_workload

    def counted(manifest: job_manifest.JobManifest, *args: Any) -> Any:
        built.append(manifest.name)
        return build(manifest, *args)

    monkeypatch.setattr(job_manifest, "build_workload", counted)
    said = warnings.job_warnings(job(make_group(1, template=make_template("1", schedulerName="kai"))), seen(), NOW)
    assert built == [JOB] and said.faults == () and "spec.schedulerName is kai" in said.differences[0]


def test_the_raycluster_of_a_service_is_planned() -> None:
    said = warnings.job_warnings(service(), seen(), NOW)
    assert said.sentences == () and said.job_to_plan is not None and said.job_to_plan["kind"] == "RayCluster"


@pytest.mark.parametrize(
    ("raw", "there", "want"),
    [
        pytest.param(
            job(rayClusterSpec={"headGroupSpec": {"template": make_template("1")}, "workerGroupSpecs": []}), seen(),
            "lacks rayStartParams: {} in headGroupSpec", id="fields that Kueue requires",
        ),
        pytest.param(
            job(clusterSelector={"a": "b"}), seen(), "spec.clusterSelector names an existing RayCluster",
            id="a job in an existing RayCluster",
        ),
        pytest.param(
            service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"}), seen(),
            "spec.upgradeStrategy.type is NewClusterWithIncrementalUpgrade", id="an incremental upgrade",
        ),
        pytest.param(
            {**service(), "spec": {"rayClusterSpec": service()["spec"]["rayClusterConfig"]}}, seen(),
            "RayService train: spec.rayClusterConfig is missing, where a RayService has the spec of its RayCluster, "
            "not in spec.rayClusterSpec; ", id="a RayService with a RayJob's field",
        ),
        pytest.param(
            service(make_group(1) | {"replicas": "two"}), seen(),
            "RayService train: spec.rayClusterConfig.workerGroupSpecs[0].replicas is 'two': ",
            id="a fault of a RayService's RayCluster",
        ),
        pytest.param(
            job(), seen(written=PolicyObjects({}, [])),
            "AdmissionCheck rayspan: spec.parameters names DispatchPolicy default, which does not exist; create it.",
            id="a check without its policy",
        ),
        pytest.param(
            job(),
            seen(
                written=PolicyObjects(
                    {"default": make_policy(clusters=["east"], gang="BestEffort", minWorkers=1)},
                    [make_worker_cluster("east")],
                )
            ),
            "its spec.submissionMode K8sJobMode starts the job only when every worker is ready",
            id="a part of the gang could never start the job",
        ),
    ],
)  # fmt: skip
def test_other_faults(raw: Raw, there: WarningContext, want: str) -> None:
    said = warnings.job_warnings(raw, there, NOW)
    assert len(said.sentences) == 1 and want in said.sentences[0] and said.job_to_plan is None
    assert said.sentences[0].endswith(".") and not said.sentences[0].endswith("..")


FAR = "worker group workers: spec.hostNetwork is true"
FILES = "worker group workers: spec.volumes[data].hostPath is /data"
LACKS = "lacks rayStartParams: {} in workerGroupSpecs[0] of spec"
INDEXED = "spec.rayClusterSpec.workerGroupSpecs[0]"


def worst(kind: str = "RayJob", **group: Any) -> Raw:
    """A job whose workers cannot run remotely and that Kueue would not accept."""
    made = make_group(4, template=make_template("1", **BAD)) | {"rayStartParams": None} | group
    return service(made) if kind == "RayService" else job(made, kind=kind)


def upgraded() -> Raw:
    made: dict[str, Any] = {**worst("RayService")}
    return {**made, "spec": {**made["spec"], "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}}}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(worst(), [LACKS, FAR, FILES], id="a RayJob without fields that Kueue requires"),
        pytest.param(worst("RayCluster"), [LACKS, FAR, FILES], id="a RayCluster without fields that Kueue requires"),
        pytest.param(worst("RayService"), [LACKS, FAR, FILES], id="a RayService without fields that Kueue requires"),
        pytest.param(
            upgraded(), [LACKS, "spec.upgradeStrategy.type is", FAR, FILES],
            id="a RayService with an incremental upgrade too",
        ),
        pytest.param(
            worst(replicas=-1, maxReplicas=-2),
            [f"{INDEXED}.maxReplicas is -2", f"{INDEXED}.replicas is -1", LACKS, FAR, FILES],
            id="invalid numbers, each once",
        ),
        pytest.param(
            worst(groupName=""),
            [
                f"{INDEXED}.groupName is missing", LACKS, "worker group workergroupspecs[0]: spec.hostNetwork",
                "worker group workergroupspecs[0]: spec.volumes",
            ],
            id="a group without a name",
        ),
        pytest.param(
            worst(template={"spec": {"containers": [], "hostNetwork": True}}),
            [f"{INDEXED}.template.spec.containers is empty", LACKS, FAR, "have no resources.requests"],
            id="a template without a container",
        ),
        pytest.param(
            worst(template=make_template("much", hostNetwork=True)),
            [f"{INDEXED}.template.spec: its containers' resources cannot be read", LACKS],
            id="a template whose resources cannot be read",
        ),
        pytest.param(
            job(make_group(1, cpu="much"), make_group(1, name="b", template=make_template("1", hostNetwork=True))),
            [f"{INDEXED}.template.spec: its containers' resources cannot be read", "worker group b: spec.hostNetwork"],
            id="a fault of the next group is reported too",
        ),
        pytest.param(
            job(
                make_group(1) | {"labels": [1]}, make_group(1, name="b", template=make_template("1", hostNetwork=True)),
            ),
            [f"{INDEXED}.labels is '[1]'", "worker group b: spec.hostNetwork"],
            id="a fault beside invalid labels is reported too",
        ),
        pytest.param(
            job(
                make_group(1, name="a", template=make_template("1", hostNetwork=True)),
                make_group(1, name="A", template=make_template("1", hostNetwork=True)),
            ),
            ["the name a is used twice", "worker group a: spec.hostNetwork"], id="groups of one name",
        ),
        pytest.param(
            job("x", make_group(1, name="b", template=make_template("1", hostNetwork=True))),  # type: ignore[arg-type]
            [f"{INDEXED} is 'x': it must be an object", "worker group b: spec.hostNetwork"],
            id="a group that is no object",
        ),
        pytest.param(
            {**job(make_group(1, template=make_template("1", hostNetwork=True)), clusterSelector={"a": "b"})},
            ["spec.clusterSelector names an existing RayCluster", FAR], id="an existing RayCluster and an own one",
        ),
        pytest.param(
            job(rayClusterSpec={"workerGroupSpecs": [], "tlsOptions": {}}),
            [
                "spec.rayClusterSpec.headGroupSpec.template.spec.containers is empty",
                "spec.rayClusterSpec.tlsOptions is set",
            ],
            id="a job without a head",
        ),
        pytest.param(
            job(
                rayClusterSpec={
                    "headGroupSpec": {"template": make_template("1")}, "workerGroupSpecs": [], "tlsOptions": "odd",
                }
            ),
            ["lacks rayStartParams: {} in headGroupSpec"], id="an invalid field hides no other fault",
        ),
        pytest.param(
            job(*(make_group(1, name=f"g{n}", template=make_template("1", hostNetwork=True)) for n in range(500))),
            ["502 podsets with head and submitter, Kueue accepts at most 18"], id="far too many groups"
        ),
    ],
)  # fmt: skip
def test_a_fault_hides_no_other_fault(raw: Raw, want: list[str]) -> None:
    before = copy.deepcopy(raw)
    said = warnings.job_warnings(raw, seen(), NOW)
    assert len(said.sentences) == len(want), said.sentences
    assert [one for one, part in zip(said.sentences, want, strict=True) if part not in one] == []
    assert said.job_to_plan is None and raw == before
    assert all(one.endswith(".") and not one.endswith("..") for one in said.sentences)


def test_the_faults_of_both_kinds_are_bounded() -> None:
    labels = {f"rayspan.dev/{n}": "" for n in range(5_000)}
    assert len(warnings.job_warnings(worst(labels=labels), seen(), NOW).sentences) == 100


def test_two_checks_that_exclude_each_other_are_reported() -> None:
    there = seen(other=make_check())
    listed = {"admissionChecks": [{"name": CHECK}, {"name": "other"}]}
    queue = read_cluster_queue(make_cluster_queue(9, name="all", admissionChecksStrategy=listed))
    there = replace(there, cluster_queues={**there.cluster_queues, "all": queue})
    assert (
        "ClusterQueue all lists rayspan and other; leave one of them there."
        in warnings.job_warnings(job(), there, NOW).sentences[0]
    )


def test_a_service_account_is_no_fault_where_every_cluster_replaces_it() -> None:
    group = make_group(4, template=make_template("1", serviceAccountName="mine"))
    given = PolicyObjects(WRITTEN.policies, [make_worker_cluster("east", pods={"serviceAccountName": "ray"})])
    assert len(warnings.job_warnings(job(group), seen(), NOW).sentences) == 1
    assert warnings.job_warnings(job(group), seen(written=given), NOW).sentences == ()


def test_a_template_that_is_far_too_large_has_one_warning() -> None:
    many = [{"name": f"v{n}", "hostPath": {"path": "/"}} for n in range(5_000)]
    (said,) = warnings.job_warnings(
        job(make_group(4, template=make_template("1", volumes=many))), seen(), NOW
    ).sentences
    assert "spec.volumes has 5000 entries, and at most 64 are allowed" in said


def test_the_search_for_faults_is_bounded() -> None:
    labels = {f"rayspan.dev/{n}": "" for n in range(5_000)}
    found = warnings.job_warnings(job({**make_group(4), "labels": labels}), seen(), NOW).sentences
    assert len(found) == 100


@pytest.mark.parametrize("odd", [{"spec": "odd"}, {"spec": {"rayClusterSpec": []}}, {"metadata": {"labels": "x"}}])
def test_an_impossible_object_raises_a_known_error(odd: Raw) -> None:
    with suppress(*UNREADABLE):
        warnings.job_warnings({**job(), **odd}, seen(), NOW)


def test_the_object_is_not_changed() -> None:
    raw, there = bad(), seen()
    before = copy.deepcopy((raw, there))
    warnings.job_warnings(raw, there, NOW)
    assert (raw, there) == before


# --- objects of admins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (make_policy(clusters=["east"]), []),
        (
            make_policy(clusters=["west"]),
            [
                "DispatchPolicy default: spec.clusters.names has WorkerCluster west, which does not exist; join it "
                "(`kubectl rayspan join`), or remove it.",
            ],
        ),
        (
            make_policy(clusters=["east"], gang="BestEffort"),
            [
                "DispatchPolicy default: spec.minWorkers: gang BestEffort needs minWorkers of 1 or more, and no other "
                "gang has one, found 0.",
            ],
        ),
        (make_policy(clusters=["west"], gang="BestEffort", strategy="Random"), [
            "DispatchPolicy default: spec.strategy: Input should be 'FillInOrder', 'AvailableCapacity', 'Spread' or "
            "'Cheapest', found 'Random'.",
            "DispatchPolicy default: spec.minWorkers: gang BestEffort needs minWorkers of 1 or more, and no other gang "
            "has one, found 0.",
            "DispatchPolicy default: spec.clusters.names has WorkerCluster west, which does not exist; join it",
        ]),
        (
            make_policy(clusters=["east"], gang="BestEffort", strategy="Random"),
            ["DispatchPolicy default: spec.strategy: ", "DispatchPolicy default: spec.minWorkers: "],
        ),
        (
            make_policy(strategy="Random", clusters=[]),
            ["DispatchPolicy default: spec.clusters: must set exactly one", "DispatchPolicy default: spec.strategy: "],
        ),
        (make_policy(clusters=["east"], workerStartTimeout="40m"),
            ["DispatchPolicy default: spec.workerStartTimeout is 40 min, and Kueue in east stops the workers"]),
        ({**make_policy(), "spec": "odd"}, ["DispatchPolicy default: spec: Input should be a valid dictionary"]),
    ],
)  # fmt: skip
def test_the_warnings_of_a_policy_are_those_of_its_condition(raw: Raw, want: list[str]) -> None:
    found = warnings.WARNINGS_BY_KIND["DispatchPolicy"](raw, WRITTEN)
    assert len(found) == len(want) and all(one.startswith(said) for one, said in zip(found, want, strict=True))


SELECTS = make_policy("by-label")
SELECTS["spec"]["clusters"] = {"selector": {"matchLabels": {"tier": "spot"}}}


@pytest.mark.parametrize(
    ("raw", "policies", "want"),
    [
        pytest.param(
            make_worker_cluster("east"), [make_policy(clusters=["east"])], False, id="a policy names the cluster",
        ),
        pytest.param(
            make_worker_cluster("north"), [make_policy(clusters=["east"])], True, id="no policy names the cluster",
        ),
        pytest.param(make_worker_cluster("north"), [], False, id="no policy exists yet"),
        pytest.param(
            make_worker_cluster("north", labels={"tier": "spot"}), [SELECTS], False,
            id="a policy selects the cluster's label",
        ),
        pytest.param(make_worker_cluster("north"), [SELECTS], True, id="the cluster lacks the selected label"),
        pytest.param(
            make_worker_cluster("north"), [{"metadata": {"name": "odd"}, "spec": {}}], False,
            id="a policy that cannot be read",
        ),
    ],
)  # fmt: skip
def test_a_cluster_that_no_policy_considers(raw: Raw, policies: list[Raw], want: bool) -> None:
    written = PolicyObjects({one["metadata"]["name"]: one for one in policies}, [make_worker_cluster("east")])
    found = warnings.WARNINGS_BY_KIND["WorkerCluster"](raw, written)
    assert [one.startswith("WorkerCluster north: no DispatchPolicy considers it") for one in found] == [True] * want


def test_the_faults_of_a_cluster_that_cannot_be_read() -> None:
    raw = make_worker_cluster("north")
    raw["spec"] |= {"source": {}, "maxUnavailable": 0}
    assert warnings.WARNINGS_BY_KIND["WorkerCluster"](raw, WRITTEN) == [
        "WorkerCluster north: spec.source: must name exactly one of kubeConfig.secretRef, multiKueueClusterRef and "
        "clusterProfileRef, found {}.",
        "WorkerCluster north: spec.maxUnavailable: Input should be greater than or equal to 1, found 0.",
    ]


# --- the plan, and the bound of warnings-------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (
            {"fits": True, "sentence": "2 of 4 workers to east, 2 to west."},
            ["RayJob train fits now: 2 of 4 workers to east, 2 to west."],
        ),
        ({"fits": False, "sentence": "3 needed."}, ["RayJob train does not fit now: 3 needed."]),
        ({"fits": "yes", "sentence": "x"}, []),
        ({"fits": True}, []),
        ({"fits": True, "sentence": 3}, []),
    ],
)  # fmt: skip
def test_the_plan_is_one_sentence(answer: Raw, want: list[str]) -> None:
    assert warnings.plan_warnings(job(), answer) == want


@pytest.mark.parametrize(
    ("sentences", "want"),
    [
        pytest.param([], [], id="no sentences"),
        pytest.param(["a.", "b."], ["a.", "b."], id="all sentences"),
        pytest.param(["a."] * 16, ["a."] * 16, id="the maximum of sentences"),
        pytest.param(
            ["a."] * 20, [*["a."] * 16, "and 4 more: apply it again when these are fixed"], id="more than the maximum",
        ),
        pytest.param(
            ["x" * 1000] * 5, [*["x" * 1000] * 3, "and 2 more: apply it again when these are fixed"],
            id="long sentences",
        ),
        pytest.param(
            ["a\nb\x00"], ["a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"],
            id="characters that an API server would drop",
        ),
    ],
)  # fmt: skip
def test_the_number_of_warnings_is_bounded(sentences: list[str], want: list[str]) -> None:
    said = warnings.limit_warnings(sentences)
    assert said == want
    assert sum(map(len, said)) < 4096


def test_a_long_warning_is_cut() -> None:
    (said,) = warnings.limit_warnings(["x" * 10_000])
    assert len(said) == MAX_ITEM_LENGTH + 1
    assert NAMESPACE == "demo"
