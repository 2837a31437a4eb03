"""The table of compatibility: the outcome and note of each sample. The creator of the pods does not matter here."""

import copy
from dataclasses import replace

import pytest
import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.corpus import golden, ground, judge, reduce, report
from hack.corpus.judge import Seen
from hack.corpus.samples import OURS, Sample
from hack.lab.base.paths import REPO


def sample(name: str) -> Sample:
    body = yaml.safe_load((REPO / OURS / f"{name}.yaml").read_text())
    return Sample(OURS, f"{name}.yaml", "A case", body, ())


def seen(name: str) -> Seen:
    """The observation of one of our samples that has a recorded pod."""
    found = sample(name)
    pod = yaml.safe_load((golden.FOLDER / f"{name}.in.yaml").read_text())
    pods = {pod["metadata"]["labels"]["ray.io/group"]: pod}
    return Seen(found, reduce.ray_cluster(found.body, "corpus"), pods=pods, answers=dict.fromkeys(pods, ""))


def spec(kind: str, cluster: Raw) -> Raw:
    return {"kind": kind, "metadata": {"name": "x"}, "spec": cluster}


GROUP = {"groupName": "w", "replicas": 7, "minReplicas": 5, "numOfHosts": 64, "template": {"spec": {"containers": []}}}
CLUSTER = {"headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": [GROUP], "suspend": True}


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
    assert reduce.ray_cluster(body, "there")["metadata"]["labels"] == {"team": "t"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (spec("RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}), "it uses a RayCluster that exists"),
        (spec("RayCluster", {"headGroupSpec": {}}), "it has no worker group"),
    ],
)
def test_a_sample_without_workers_has_a_reason(body: Raw, why: str) -> None:
    with pytest.raises(reduce.NoCluster, match=why):
        reduce.ray_cluster(body, "there")


def test_an_accepted_pod_is_dispatched() -> None:
    assert judge.finding(seen("plain")).outcome == judge.DISPATCHED


def test_the_controllers_rejection_comes_before_the_worker_clusters_answer() -> None:
    found = judge.finding(replace(seen("autoscaled"), answers={"workers": "no"}))
    assert found.outcome == judge.REFUSED
    assert "enableInTreeAutoscaling is true" in found.reason


def test_a_pod_that_the_worker_cluster_rejects_is_a_fault() -> None:
    found = judge.finding(replace(seen("plain"), answers={"Workers": "it is wrong"}))
    assert (found.outcome, found.reason) == (judge.BROKEN, "the worker cluster refuses the pod: it is wrong")


def test_a_pod_that_names_the_manager_is_a_fault() -> None:
    pods = copy.deepcopy(seen("plain").pods)
    pods["Workers"]["spec"]["tolerations"].append({"key": "plain-head-svc"})  # a field where no address is searched
    found = judge.finding(replace(seen("plain"), pods=pods))
    assert (found.outcome, found.reason) == (judge.BROKEN, "the pod still speaks of the manager's plain-head-svc")


def stuck() -> Seen:
    """The observation of a sample to which the configured KubeRay operator adds a directory of the node."""
    pods = copy.deepcopy(seen("plain").pods)
    pods["Workers"]["spec"]["volumes"].append({"name": "cache", "hostPath": {"path": "/data"}})
    return replace(seen("plain"), pods=pods)


def test_additions_of_kuberay_are_read_from_its_pod() -> None:
    found = judge.finding(stuck())
    assert found.outcome == judge.STUCK
    assert found.reason.startswith("spec.volumes[cache].hostPath is /data")


def test_a_service_is_judged_by_its_workers_and_by_how_it_upgrades() -> None:
    found = seen("service")
    assert judge.finding(found).outcome == judge.DISPATCHED
    body = {**found.sample.body, "spec": {"upgradeStrategy": {"type": names.INCREMENTAL_UPGRADE}}}
    stepwise = judge.finding(replace(found, sample=replace(found.sample, body=body)))
    assert (stepwise.outcome, stepwise.group) == (judge.REFUSED, "")
    assert stepwise.reason.startswith("spec.upgradeStrategy.type is ")


def test_samples_of_one_name_are_kept_apart() -> None:
    named = [sample(name) for name in ("plain", "plain", "gpu", "plain")]
    assert ground.namespaces(named) == ["corpus", "corpus1", "corpus", "corpus2"]


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


def test_the_page_counts_and_numbers_kueues_messages() -> None:
    both = [replace(one, kueue='RayCluster.ray.io "x" is invalid: too | odd') for one in (seen("plain"), stuck())]
    page = report.page([*both, seen("service")])
    assert "Of 3 samples: 2 dispatched, 0 refused, 1 cannot start, 0 broken, 0 no workers." in page
    assert page.count("| no (1) |") == 2
    assert page.endswith("\n1. `too | odd`\n")


def test_messages_of_the_api_server_in_any_order_are_one_note() -> None:
    null = 'x.rayStartParams: Invalid value: "null": x.rayStartParams in body must be of type object: "null"'
    page = report.page([replace(seen("plain"), kueue=said) for said in (f"[{null}, other]", f"[other, {null}]")])
    assert page.count("| no (1) |") == 2
    assert "write rayStartParams: {}" in page
