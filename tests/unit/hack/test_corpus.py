"""What becomes of a sample, by the answers of the clusters. The creator of the pods does not matter here."""

import copy
import functools
from dataclasses import replace
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.corpus import answers, ask, golden, ground, judge, naming, reduce, samples
from hack.corpus.answers import TAKEN, Answers, PodAnswer, Refusal
from hack.corpus.samples import OURS, SHAPES, Sample
from hack.lab.base.paths import REPO

FINE = {"workers": PodAnswer()}
NO = Refusal("Invalid", "no")


def sample(name: str, source: str = OURS) -> Sample:
    return _samples(source)[f"{name}.yaml"]


@functools.cache
def _samples(source: str) -> dict[str, Sample]:
    return {entry.name: entry for entry in samples.of_repo(source)}


def recorded(name: str) -> tuple[Raw, Raw]:
    """The RayCluster and the recorded pod of one of our samples."""
    pod = yaml.safe_load((golden.FOLDER / f"{name}.in.yaml").read_text())
    cluster = reduce.ray_cluster(sample(name).body, "corpus")
    assert cluster is not None
    return cluster, pod


def spec(kind: str, cluster: Raw) -> Raw:
    return {"kind": kind, "metadata": {"name": "x"}, "spec": cluster}


GROUP = {"groupName": "w", "replicas": 7, "minReplicas": 5, "numOfHosts": 64, "template": {"spec": {"containers": []}}}
CLUSTER = {"headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": [GROUP], "suspend": True}


# --- the RayCluster of a sample --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "crd"),
    [
        (spec("RayCluster", CLUSTER), None),
        (spec("RayJob", {"rayClusterSpec": CLUSTER}), "RayJob"),
        (spec("RayCronJob", {"jobTemplate": {"rayClusterSpec": CLUSTER}}), "RayJob"),
        (spec("RayService", {"rayClusterConfig": CLUSTER}), "RayService"),
    ],
    ids=["cluster", "job", "cron job", "service"],
)
def test_every_kind_becomes_a_small_suspended_cluster(body: Raw, crd: str | None) -> None:
    before = copy.deepcopy(body)
    made = reduce.ray_cluster(body, "there")
    assert made is not None
    (group,) = made["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["numOfHosts"]) == (1, 1, 2)
    assert group["template"]["metadata"]["labels"] == {names.PLACEMENT_LABEL: reduce.PLACEMENT}, (
        "the gate's policy holds it"
    )
    assert made["spec"]["headGroupSpec"]["template"]["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert made["metadata"]["labels"].get("ray.io/originated-from-crd") == crd
    assert "suspend" not in made["spec"]
    assert body == before


def test_a_sample_with_a_queue_is_not_held_by_kueue() -> None:
    body = spec("RayCluster", CLUSTER)
    body["metadata"]["labels"] = {names.QUEUE_LABEL: "q", "team": "t"}
    made = reduce.ray_cluster(body, "there")
    assert made is not None and made["metadata"]["labels"] == {"team": "t"}
    assert reduce.in_queue(body, "there", "")["metadata"]["labels"] == {"team": "t"}


@pytest.mark.parametrize(
    "body",
    [
        spec("RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}),
        spec("RayCluster", {"headGroupSpec": {}}),
        spec("RayService", {"rayClusterSpec": CLUSTER}),
    ],
)
def test_a_sample_without_workers_has_no_raycluster_to_create(body: Raw) -> None:
    assert reduce.ray_cluster(body, "there") is None


def test_kueue_queues_the_raycluster_of_a_service_and_the_job_of_a_cron_job() -> None:
    service = reduce.in_queue(spec("RayService", {"rayClusterConfig": CLUSTER}), "there", "q")
    queued = reduce.queued_object(service)
    assert (queued["kind"], queued["metadata"]["labels"], queued["spec"]) == (
        "RayCluster", {names.QUEUE_LABEL: "q"}, CLUSTER,
    )  # fmt: skip
    assert reduce.in_queue(spec("RayCronJob", {"jobTemplate": {"a": 1}}), "there", "q")["spec"] == {"a": 1}


def test_samples_of_one_name_are_kept_apart() -> None:
    named = [sample(name) for name in ("plain", "plain", "gpu", "plain")]
    assert ground.namespaces(named) == ["corpus", "corpus1", "corpus", "corpus2"]


# --- what an administrator names -------------------------------------------------------------------------------------


def test_the_lines_of_the_messages_name_all_that_a_sample_needs() -> None:
    """A host path that the worker writes to is named for that; the message leaves this to the administrator."""
    pods = naming.names_for(reduce.worker_templates(sample("hostpath", SHAPES).body), "team")
    assert pods == {
        "hostPaths": [
            {"prefix": "/home/kubernetes/bin/nvidia", "namespaces": ["team"]},
            {"prefix": "/mnt/nvme/scratch", "namespaces": ["team"], "readOnly": False},
        ]
    }
    assert naming.names_for(reduce.worker_templates(sample("plain").body), "team") == {}


SCRATCH = {"prefix": "/scratch", "namespaces": ["team"]}


@pytest.mark.parametrize(
    ("mounts", "entry"),
    [
        pytest.param([("a", False), ("b", False)], {**SCRATCH, "readOnly": False}, id="written by both volumes"),
        pytest.param([("a", True), ("b", False)], {**SCRATCH, "readOnly": False}, id="written by one volume"),
        pytest.param([("a", True), ("b", True)], SCRATCH, id="read only: the default of an entry is not written"),
        pytest.param([], SCRATCH, id="not mounted"),
    ],
)
def test_a_path_of_two_volumes_is_named_once(mounts: list[tuple[str, bool]], entry: Raw) -> None:
    volumes = [{"name": name, "hostPath": {"path": "/scratch"}} for name in "ab"]
    mounted = [
        {"name": name, "mountPath": f"/{name}", **({"readOnly": True} if read_only else {})}
        for name, read_only in mounts
    ]
    template = {"spec": {"volumes": volumes, "containers": [{"name": "ray", "volumeMounts": mounted}]}}
    assert naming.names_for([template, template], "team") == {"hostPaths": [entry]}


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "plain", "named"),
    [
        pytest.param(Answers(pods=FINE), judge.ACCEPTED, judge.ACCEPTED, id="taken"),
        pytest.param(Answers(), judge.NO_WORKERS, judge.NO_WORKERS, id="no pods"),
        pytest.param(Answers(alone=NO), judge.INVALID, judge.INVALID, id="of no use without a queue either"),
        pytest.param(Answers(kuberay="no"), judge.INVALID, judge.INVALID, id="KubeRay makes no pods"),
        pytest.param(Answers(queue=NO, pods=FINE), judge.REFUSED, judge.ACCEPTED, id="a queue that adds lines"),
        pytest.param(Answers(defaults_queue=NO, pods=FINE), judge.ACCEPTED, judge.REFUSED, id="refused in that queue"),
        pytest.param(Answers(worker_cluster=NO, pods=FINE), judge.ACCEPTED, judge.REFUSED, id="names not taken"),
        pytest.param(Answers(pods={"a": PodAnswer(denied=NO)}), judge.BROKEN, judge.BROKEN, id="the pod is denied"),
        pytest.param(Answers(pods={"a": PodAnswer(manager_name="x")}), judge.BROKEN, judge.BROKEN, id="a name is left"),
        pytest.param(Answers(pods={"a": PodAnswer(addition="x")}), judge.STUCK, judge.STUCK, id="KubeRay adds a path"),
    ],
)
def test_the_clusters_answers_decide(given: Answers, plain: str, named: str) -> None:
    verdicts = [judge.verdict(sample("plain"), given, named=with_names) for with_names in (False, True)]
    assert [verdict.outcome for verdict in verdicts] == [plain, named]
    assert [bool(verdict.reasons) for verdict in verdicts] == [not verdict.runs for verdict in verdicts]


def test_a_name_turns_a_rejection_into_an_acceptance() -> None:
    account = sample("account", SHAPES)
    plain = judge.verdict(account, Answers(pods=FINE), named=False)
    assert (plain.outcome, [reason.code for reason in plain.reasons]) == (judge.REFUSED, ["Rejected"])
    assert plain.reasons[0].message.startswith("worker group workers: spec.serviceAccountName is training: ")
    named = judge.verdict(account, Answers(pods=FINE), named=True)
    assert (named.outcome, named.names) == (judge.ACCEPTED, ("serviceAccounts",))


def test_the_lines_of_the_queue_count_with_naming() -> None:
    grows = sample("service-that-grows", SHAPES)
    lines = {f'["metadata", "annotations", "{names.ELASTIC_ANNOTATION}"]': "true"}
    verdicts = [judge.verdict(grows, Answers(pods=FINE, defaults=lines), named=named) for named in (False, True)]
    assert [verdict.outcome for verdict in verdicts] == [judge.REFUSED, judge.ACCEPTED]
    assert "spec.rayClusterConfig.enableInTreeAutoscaling" in verdicts[0].reasons[0].message
    assert verdicts[1].names == (names.JOB_DEFAULTS_LABEL,)


def test_what_rayspan_warns_of_refuses_nothing() -> None:
    verdict = judge.verdict(sample("svc-in-env", SHAPES), Answers(pods=FINE), named=True)
    assert verdict.outcome == judge.ACCEPTED
    (warning,) = verdict.warnings
    assert warning.startswith(
        "worker group workers: spec.containers[ray-worker].env[MODEL_URL] has embedder.corpus.svc"
    )


def test_a_job_on_a_raycluster_that_exists_has_no_workers_of_its_own() -> None:
    body = {**spec("RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}), "apiVersion": "ray.io/v1"}
    existing = replace(sample("plain"), body=body)
    assert judge.verdict(existing, Answers(), named=False).outcome == judge.NO_WORKERS


# --- pods ------------------------------------------------------------------------------------------------------------


def pod_answer(cluster: Raw, pod: Raw) -> PodAnswer:
    return judge.pod_answer(cluster, pod, judge.mapping_of(sample("plain")), TAKEN)


def test_an_accepted_pod_has_no_fault() -> None:
    assert pod_answer(*recorded("plain")) == PodAnswer()


def test_a_pod_that_names_the_manager_is_a_fault() -> None:
    cluster, pod = recorded("plain")
    pod["spec"]["tolerations"].append({"key": "plain-head-svc"})  # a field where no address is searched
    assert pod_answer(cluster, pod).manager_name == "plain-head-svc"


def test_additions_of_kuberay_are_read_from_its_pod() -> None:
    """The configured KubeRay operator adds a directory of the node, which no WorkerCluster names."""
    cluster, pod = recorded("plain")
    pod["spec"]["volumes"].append({"name": "cache", "hostPath": {"path": "/data"}})
    assert pod_answer(cluster, pod).addition.startswith("spec.volumes[cache].hostPath is /data")


@pytest.mark.parametrize("name", golden.CHOSEN)
def test_a_recorded_pod_has_nothing_random_left(name: str) -> None:
    pod = yaml.safe_load((golden.FOLDER / f"{name}.in.yaml").read_text())
    assert golden.settled(pod) == pod


def test_two_runs_give_one_recorded_pod() -> None:
    pod = yaml.safe_load((golden.FOLDER / "tpu-multi-host.in.yaml").read_text())
    text = yaml.safe_dump(pod).replace("x7k2p", "abcde").replace("2026-01-01", "2027-02-03")
    other = yaml.safe_load(
        text.replace(pod["metadata"]["uid"], "another").replace("resourceVersion: '1'", "resourceVersion: '2'")
    )
    assert other != pod
    assert golden.settled({**other, "metadata": {**other["metadata"], "managedFields": [{}]}}) == pod


# --- answers ---------------------------------------------------------------------------------------------------------


def test_answers_are_read_as_they_were_written() -> None:
    pods = {"a": PodAnswer(), "b": PodAnswer(denied=NO, manager_name="x")}
    written = {"one": Answers(alone=NO, defaults={'["spec"]': {}, '["a"]': False}, pods=pods), "two": Answers()}
    assert answers.read_text(answers.write_text(written)) == written


def test_only_the_lines_of_the_component_are_recorded() -> None:
    sent: dict[str, Any] = {
        "metadata": {"name": "x"},
        "spec": {"groups": [{"name": "a"}], "shutdownAfterJobFinishes": False},
    }
    stored = {
        "metadata": {"name": "x", "uid": "u", "annotations": {names.ELASTIC_ANNOTATION: "true", "other": "x"}},
        "spec": {"groups": [{"name": "a", "rayStartParams": {}}], "suspend": True, "shutdownAfterJobFinishes": True},
    }
    assert dict(ask.added_fields(sent, stored)) == {
        f'["metadata", "annotations", "{names.ELASTIC_ANNOTATION}"]': "true",
        '["spec", "groups", 0, "rayStartParams"]': {},
        '["spec", "shutdownAfterJobFinishes"]': True,
    }


def test_messages_of_the_api_server_in_any_order_are_one() -> None:
    null = 'x.rayStartParams: Invalid value: "null": x.rayStartParams in body must be of type object: "null"'
    assert ask.plain_words(f"[{null}, other]") == ask.plain_words(f"[other, {null}]")
    assert ask.plain_words('RayCluster.ray.io "x" is invalid: too odd') == "too odd"


def test_the_shapes_and_our_cases_are_apart() -> None:
    assert {entry.name for entry in samples.of_repo(SHAPES)}.isdisjoint(entry.name for entry in samples.of_repo(OURS))
    assert len(samples.of_repo(SHAPES)) == len([*(REPO / SHAPES).glob("*.yaml")]) == 16
