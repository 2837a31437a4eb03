"""Whoever applies hears all that is wrong at once, and nothing of what is nobody's business here."""

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
    """The queue `team-a` with our check, unless others are named: LocalQueue -> ClusterQueue; `all` has the check, `here` has none."""
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
        pytest.param(job(queue=None), {QUEUE: "all"}, "metadata.labels has no kueue.x-k8s.io/queue-name, so it waits in no queue, and its workers start in the manager cluster; for worker clusters name LocalQueue team-a of namespace demo.", id="no label"),
        pytest.param(job(queue=None), {"home": "here"}, "", id="no label, where nobody dispatches"),
        pytest.param(job(queue=None), {}, "", id="no label, and no queue"),
        pytest.param(job(queue=None), {"default": "here", QUEUE: "all"}, "ClusterQueue here of LocalQueue default has no AdmissionCheck of rayspan.dev/dispatch", id="the default one is another"),
        pytest.param(job(queue="gold"), BOTH, "namespace demo has no LocalQueue gold, it has home, team-a, so it waits until there is one; name one in metadata.labels kueue.x-k8s.io/queue-name.", id="no such queue"),
        pytest.param(job(queue="gold"), {}, "namespace demo has no LocalQueue gold, it has none, so it waits", id="no queue at all"),
        pytest.param(job(queue="home"), BOTH, "ClusterQueue here of LocalQueue home has no AdmissionCheck of rayspan.dev/dispatch, so its workers run in the manager cluster; for worker clusters name LocalQueue team-a of namespace demo.", id="a queue without the check"),
        pytest.param(job(queue="home"), {"home": "here"}, "", id="the same where none has it"),
        pytest.param(job(), {QUEUE: "gone"}, "LocalQueue team-a leads to ClusterQueue gone, which does not exist", id="a queue that leads nowhere"),
        pytest.param(bad(), {"home": "here", QUEUE: "here"}, "", id="what stays here may be as it likes"),
    ],
)  # fmt: skip
def test_which_way_a_job_goes(raw: Raw, there: dict[str, str], want: str) -> None:
    said = warnings.job_warnings(raw, seen(there), NOW)
    assert said.job_to_plan is None
    assert [one.startswith(f"RayJob {JOB}: {want}") for one in said.sentences] == ([True] if want else [])


def test_a_default_queue_that_dispatches_is_the_jobs() -> None:
    raw = job(queue=None)
    assert warnings.job_warnings(raw, seen({"default": "all"}), NOW) == JobWarnings((), raw)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
def test_all_refusals_come_at_once(kind: str) -> None:
    said = warnings.job_warnings(bad(kind), seen(), NOW)
    assert said.job_to_plan is None
    assert list(said.sentences) == [
        f"{kind} train: worker group workers: spec.hostNetwork is true: a worker needs a pod IP of its own, which the other clusters can reach; remove it.",
        f"{kind} train: worker group workers: spec.volumes[data].hostPath is /data: the files of the manager's nodes are not there; use emptyDir or object storage.",
    ]


def test_the_first_is_what_the_check_will_say() -> None:
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


def test_a_job_that_may_go_is_planned() -> None:
    raw = job()
    assert warnings.job_warnings(raw, seen(), NOW) == JobWarnings((), raw)


def test_of_a_service_its_ray_cluster_is_planned() -> None:
    said = warnings.job_warnings(service(), seen(), NOW)
    assert said.sentences == () and said.job_to_plan is not None and said.job_to_plan["kind"] == "RayCluster"


@pytest.mark.parametrize(
    ("raw", "there", "want"),
    [
        pytest.param(job(rayClusterSpec={"headGroupSpec": {"template": make_template("1")}, "workerGroupSpecs": []}), seen(), "lacks rayStartParams: {} in headGroupSpec", id="lines that Kueue asks for"),
        pytest.param(job(clusterSelector={"a": "b"}), seen(), "spec.clusterSelector names a RayCluster that runs already", id="a job in a cluster that is there"),
        pytest.param(service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"}), seen(), "spec.upgradeStrategy.type is NewClusterWithIncrementalUpgrade", id="an upgrade that grows"),
        pytest.param(job(), seen(written=PolicyObjects({}, [])), "AdmissionCheck rayspan: spec.parameters names DispatchPolicy default, which does not exist; create it.", id="a check without its policy"),
        pytest.param(job(), seen(written=PolicyObjects({"default": make_policy(clusters=["east"], gang="BestEffort", minWorkers=1)}, [make_worker_cluster("east")])), "its spec.submissionMode K8sJobMode starts the job only when every worker is ready", id="a part would wait for ever"),
    ],
)  # fmt: skip
def test_what_else_is_in_the_way(raw: Raw, there: WarningContext, want: str) -> None:
    said = warnings.job_warnings(raw, there, NOW)
    assert len(said.sentences) == 1 and want in said.sentences[0] and said.job_to_plan is None
    assert said.sentences[0].endswith(".") and not said.sentences[0].endswith("..")


FAR = "worker group workers: spec.hostNetwork is true"
FILES = "worker group workers: spec.volumes[data].hostPath is /data"
LACKS = "lacks rayStartParams: {} in workerGroupSpecs[0] of spec"
INDEXED = "spec.rayClusterSpec.workerGroupSpecs[0]"


def worst(kind: str = "RayJob", **group: Any) -> Raw:
    """A job whose workers can be nowhere else, and that Kueue would not let in."""
    made = make_group(4, template=make_template("1", **BAD)) | {"rayStartParams": None} | group
    return service(made) if kind == "RayService" else job(made, kind=kind)


def upgraded() -> Raw:
    made: dict[str, Any] = {**worst("RayService")}
    return {**made, "spec": {**made["spec"], "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}}}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(worst(), [LACKS, FAR, FILES], id="lines that it lacks"),
        pytest.param(worst("RayCluster"), [LACKS, FAR, FILES], id="the same of a RayCluster"),
        pytest.param(worst("RayService"), [LACKS, FAR, FILES], id="the same of a RayService"),
        pytest.param(upgraded(), [LACKS, "spec.upgradeStrategy.type is", FAR, FILES], id="what is wrong with a RayService beside"),
        pytest.param(worst(replicas=-1, maxReplicas=-2), [f"{INDEXED}.maxReplicas is -2", f"{INDEXED}.replicas is -1", LACKS, FAR, FILES], id="numbers that are none, each once"),
        pytest.param(worst(groupName=""), [f"{INDEXED}.groupName is missing", LACKS, "worker group workergroupspecs[0]: spec.hostNetwork", "worker group workergroupspecs[0]: spec.volumes"], id="a group without a name"),
        pytest.param(worst(template={"spec": {"containers": [], "hostNetwork": True}}), [f"{INDEXED}.template.spec.containers is empty", LACKS, FAR, "have no resources.requests"], id="a template without a container"),
        pytest.param(worst(template=make_template("much", hostNetwork=True)), [f"{INDEXED}.template.spec: its containers' resources cannot be read", LACKS], id="a template that cannot be judged"),
        pytest.param(job(make_group(1, cpu="much"), make_group(1, name="b", template=make_template("1", hostNetwork=True))), [f"{INDEXED}.template.spec: its containers' resources cannot be read", "worker group b: spec.hostNetwork"], id="and the group beside it"),
        pytest.param(job(make_group(1) | {"labels": [1]}, make_group(1, name="b", template=make_template("1", hostNetwork=True))), [f"{INDEXED}.labels is '[1]'", "worker group b: spec.hostNetwork"], id="and beside labels that are none"),
        pytest.param(job(make_group(1, name="a", template=make_template("1", hostNetwork=True)), make_group(1, name="A", template=make_template("1", hostNetwork=True))), ["the name a is taken twice", "worker group a: spec.hostNetwork"], id="groups of one name"),
        pytest.param(job("x", make_group(1, name="b", template=make_template("1", hostNetwork=True))), [f"{INDEXED} is 'x': it must be an object", "worker group b: spec.hostNetwork"], id="no group"),  # type: ignore[arg-type]
        pytest.param({**job(make_group(1, template=make_template("1", hostNetwork=True)), clusterSelector={"a": "b"})}, ["spec.clusterSelector names a RayCluster", FAR], id="a cluster that is there, and one of its own"),
        pytest.param(job(rayClusterSpec={"workerGroupSpecs": [], "tlsOptions": {}}), ["spec.rayClusterSpec.headGroupSpec.template.spec.containers is empty", "spec.rayClusterSpec.tlsOptions is set"], id="no head"),
        pytest.param(job(rayClusterSpec={"headGroupSpec": {"template": make_template("1")}, "workerGroupSpecs": [], "tlsOptions": "odd"}), ["lacks rayStartParams: {} in headGroupSpec"], id="what cannot be judged takes nothing away"),
        pytest.param(job(*(make_group(1, name=f"g{n}", template=make_template("1", hostNetwork=True)) for n in range(500))), ["502 podsets with head and submitter, Kueue takes 18 at most"], id="out of all proportion"),
    ],
)  # fmt: skip
def test_a_fault_hides_nothing(raw: Raw, want: list[str]) -> None:
    before = copy.deepcopy(raw)
    said = warnings.job_warnings(raw, seen(), NOW)
    assert len(said.sentences) == len(want), said.sentences
    assert [one for one, part in zip(said.sentences, want, strict=True) if part not in one] == []
    assert said.job_to_plan is None and raw == before
    assert all(one.endswith(".") and not one.endswith("..") for one in said.sentences)


def test_faults_of_both_sorts_are_not_counted_on_for_ever() -> None:
    labels = {f"rayspan.dev/{n}": "" for n in range(5_000)}
    assert len(warnings.job_warnings(worst(labels=labels), seen(), NOW).sentences) == 100


def test_two_checks_that_exclude_each_other_are_told() -> None:
    there = seen(other=make_check())
    listed = {"admissionChecks": [{"name": CHECK}, {"name": "other"}]}
    queue = read_cluster_queue(make_cluster_queue(9, name="all", admissionChecksStrategy=listed))
    there = replace(there, cluster_queues={**there.cluster_queues, "all": queue})
    assert (
        "ClusterQueue all lists rayspan and other; leave one of them there."
        in warnings.job_warnings(job(), there, NOW).sentences[0]
    )


def test_an_account_is_no_matter_where_every_cluster_gives_one() -> None:
    group = make_group(4, template=make_template("1", serviceAccountName="mine"))
    given = PolicyObjects(WRITTEN.policies, [make_worker_cluster("east", pods={"serviceAccountName": "ray"})])
    assert len(warnings.job_warnings(job(group), seen(), NOW).sentences) == 1
    assert warnings.job_warnings(job(group), seen(written=given), NOW).sentences == ()


def test_a_template_out_of_all_proportion_is_told_of_that_alone() -> None:
    many = [{"name": f"v{n}", "hostPath": {"path": "/"}} for n in range(5_000)]
    (said,) = warnings.job_warnings(
        job(make_group(4, template=make_template("1", volumes=many))), seen(), NOW
    ).sentences
    assert "spec.volumes has 5000 entries, and at most 64 are taken" in said


def test_faults_beyond_count_are_not_all_looked_for() -> None:
    labels = {f"rayspan.dev/{n}": "" for n in range(5_000)}
    found = warnings.job_warnings(job({**make_group(4), "labels": labels}), seen(), NOW).sentences
    assert len(found) == 100


@pytest.mark.parametrize("odd", [{"spec": "odd"}, {"spec": {"rayClusterSpec": []}}, {"metadata": {"labels": "x"}}])
def test_what_no_api_server_shows_ends_in_a_way_that_callers_know(odd: Raw) -> None:
    with suppress(*UNREADABLE):
        warnings.job_warnings({**job(), **odd}, seen(), NOW)


def test_nothing_is_changed() -> None:
    raw, there = bad(), seen()
    before = copy.deepcopy((raw, there))
    warnings.job_warnings(raw, there, NOW)
    assert (raw, there) == before


# --- what admins write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (make_policy(clusters=["east"]), []),
        (make_policy(clusters=["west"]), ["DispatchPolicy default: spec.clusters.names has WorkerCluster west, which does not exist; join it (`kubectl rayspan join`), or take it out."]),
        (make_policy(clusters=["east"], gang="BestEffort"), ["DispatchPolicy default: spec.minWorkers: gang BestEffort needs minWorkers of 1 or more, and no other gang has one, found 0."]),
        (make_policy(clusters=["west"], gang="BestEffort", strategy="Random"), [
            "DispatchPolicy default: spec.strategy: Input should be 'FillInOrder', 'AvailableCapacity' or 'Spread', found 'Random'.",
            "DispatchPolicy default: spec.minWorkers: gang BestEffort needs minWorkers of 1 or more, and no other gang has one, found 0.",
            "DispatchPolicy default: spec.clusters.names has WorkerCluster west, which does not exist; join it",
        ]),
        (make_policy(clusters=["east"], gang="BestEffort", strategy="Random"), ["DispatchPolicy default: spec.strategy: ", "DispatchPolicy default: spec.minWorkers: "]),
        (make_policy(strategy="Random", clusters=[]), ["DispatchPolicy default: spec.clusters: must set exactly one", "DispatchPolicy default: spec.strategy: "]),
        ({**make_policy(), "spec": "odd"}, ["DispatchPolicy default: spec: Input should be a valid dictionary"]),
    ],
)  # fmt: skip
def test_a_policy_says_what_its_condition_will_say(raw: Raw, want: list[str]) -> None:
    found = warnings.WARNINGS_BY_KIND["DispatchPolicy"](raw, WRITTEN)
    assert len(found) == len(want) and all(one.startswith(said) for one, said in zip(found, want, strict=True))


SELECTS = make_policy("by-label")
SELECTS["spec"]["clusters"] = {"selector": {"matchLabels": {"tier": "spot"}}}


@pytest.mark.parametrize(
    ("raw", "policies", "want"),
    [
        pytest.param(make_worker_cluster("east"), [make_policy(clusters=["east"])], False, id="it is named"),
        pytest.param(make_worker_cluster("north"), [make_policy(clusters=["east"])], True, id="nobody names it"),
        pytest.param(make_worker_cluster("north"), [], False, id="there is no policy yet"),
        pytest.param(make_worker_cluster("north", labels={"tier": "spot"}), [SELECTS], False, id="its label is selected"),
        pytest.param(make_worker_cluster("north"), [SELECTS], True, id="it has no label"),
        pytest.param(make_worker_cluster("north"), [{"metadata": {"name": "odd"}, "spec": {}}], False, id="a policy that cannot be read"),
    ],
)  # fmt: skip
def test_a_cluster_that_no_policy_considers(raw: Raw, policies: list[Raw], want: bool) -> None:
    written = PolicyObjects({one["metadata"]["name"]: one for one in policies}, [make_worker_cluster("east")])
    found = warnings.WARNINGS_BY_KIND["WorkerCluster"](raw, written)
    assert [one.startswith("WorkerCluster north: no DispatchPolicy considers it") for one in found] == [True] * want


def test_a_cluster_that_cannot_be_read_says_why() -> None:
    raw = make_worker_cluster("north")
    raw["spec"] |= {"source": {}, "maxUnavailable": 0}
    assert warnings.WARNINGS_BY_KIND["WorkerCluster"](raw, WRITTEN) == [
        "WorkerCluster north: spec.source: must name exactly one of kubeConfig.secretRef, multiKueueClusterRef and clusterProfileRef, found {}.",
        "WorkerCluster north: spec.maxUnavailable: Input should be greater than or equal to 1, found 0.",
    ]


# --- the plan, and how much is said ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ({"fits": True, "sentence": "2 of 4 workers to east, 2 to west."}, ["RayJob train fits now: 2 of 4 workers to east, 2 to west."]),
        ({"fits": False, "sentence": "3 needed."}, ["RayJob train does not fit now: 3 needed."]),
        ({"fits": "yes", "sentence": "x"}, []),
        ({"fits": True}, []),
        ({"fits": True, "sentence": 3}, []),
    ],
)  # fmt: skip
def test_the_plan_in_a_sentence(answer: Raw, want: list[str]) -> None:
    assert warnings.plan_warnings(job(), answer) == want


@pytest.mark.parametrize(
    ("sentences", "want"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(["a.", "b."], ["a.", "b."], id="all"),
        pytest.param(["a."] * 16, ["a."] * 16, id="as many as anybody reads"),
        pytest.param(["a."] * 20, [*["a."] * 16, "and 4 more: apply it again when these are mended"], id="more"),
        pytest.param(["x" * 1000] * 5, [*["x" * 1000] * 3, "and 2 more: apply it again when these are mended"], id="long ones"),
        pytest.param(["a\nb\x00"], ["a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"], id="what an API server would drop"),
    ],
)  # fmt: skip
def test_what_is_said_is_bounded(sentences: list[str], want: list[str]) -> None:
    said = warnings.limit_warnings(sentences)
    assert said == want
    assert sum(map(len, said)) < 4096


def test_one_sentence_is_not_longer_than_one_is_elsewhere() -> None:
    (said,) = warnings.limit_warnings(["x" * 10_000])
    assert len(said) == MAX_ITEM_LENGTH + 1
    assert NAMESPACE == "demo"
