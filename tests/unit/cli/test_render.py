"""`rayspan render` from its user's view: its output streams and exit codes."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import __main__ as command
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO
from tests.unit import builders
from tests.unit.rewrite.test_rewriter import GOLDEN, RECORDED, kuberay_pod
from tests.unit.stores import make_group, make_ray_job

Capture = pytest.CaptureFixture[str]
PLAIN = GOLDEN / "plain.in.yaml"


def worker(name: str = "w", **spec: Any) -> Raw:
    pod = kuberay_pod(resources={"requests": {"cpu": "1"}})
    pod["metadata"]["labels"]["ray.io/node-type"] = "worker"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod,
        "metadata": {**pod["metadata"], "name": name},
        "spec": pod["spec"] | spec,
    }


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command with objects, a text or a path, and options; returns its exit code."""

    def run(given: Any, *options: object) -> int:
        path = given if isinstance(given, Path) else tmp_path / "given"
        if not isinstance(given, Path):
            path.write_text(given if isinstance(given, str) else yaml.safe_dump_all(given))
        monkeypatch.setattr(sys, "argv", ["kubectl-rayspan", "render", "-f", str(path), *map(str, options)])
        return command.main()

    return run


@pytest.fixture
def east(tmp_path: Path) -> Path:
    """A file with a WorkerCluster that sets fields of its pods."""
    pods = {
        "nodeSelector": {"pool": "ray"},
        "serviceAccountName": "there",
        "imageRegistries": {"docker.io": "hub.east"},
    }
    raw = {
        "apiVersion": "rayspan.dev/v1alpha1",
        "kind": "WorkerCluster",
        **builders.make_worker_cluster(zone="us-1", pods=pods),
    }
    file = tmp_path / "east.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def shown(text: str) -> list[Raw]:
    return list(yaml.safe_load_all(text))


def test_a_template_with_our_marks_is_rejected_like_its_job(render: Any, capsys: Capture) -> None:
    group = make_group(1)
    group["template"]["metadata"] = {"labels": {"rayspan.dev/manager": "x"}}
    assert render([make_ray_job(group)]) == 3
    assert "metadata.labels has rayspan.dev/manager: " in capsys.readouterr().err


@pytest.mark.parametrize("name", RECORDED)
def test_a_pod_is_shown_with_its_changes_and_reasons(name: str, render: Any, capsys: Capture) -> None:
    assert render(GOLDEN / f"{name}.in.yaml") == 0
    said = capsys.readouterr()
    (pod,) = shown(said.out)
    assert pod["kind"] == "Pod" and "status" not in pod
    comments = [line for line in said.out.splitlines() if line.startswith("#")]
    assert comments[0] == f"# Pod {pod['metadata']['name']} in worker cluster worker"
    assert "#   spec.priority removed, was 0: the share's Workload has the priority there" in comments
    assert said.err == "" and "no reason is known" not in said.out


def test_the_cluster_and_the_heads_address_may_be_given(render: Any, east: Path, capsys: Capture) -> None:
    assert render([worker()], "--worker-cluster", east, "--head", "fd00::7") == 0
    out = capsys.readouterr().out
    (pod,) = shown(out)
    assert pod["metadata"]["labels"]["rayspan.dev/cluster"] == "east"
    assert pod["spec"]["nodeSelector"] == {"pool": "ray"} and pod["spec"]["serviceAccountName"] == "there"
    assert pod["spec"]["containers"][0]["image"] == "hub.east/library/ray"
    assert "#   spec.nodeSelector added: as the WorkerCluster's spec.pods specifies: {'pool': 'ray'}" in out
    assert {"name": "RAY_ADDRESS", "value": "[fd00::7]:6379"} in pod["spec"]["containers"][0]["env"]


def test_the_clusters_head_strategy_is_used(render: Any, tmp_path: Path, capsys: Capture) -> None:
    spec = builders.make_worker_cluster(head={"address": "ServiceMirror"})
    raw = {"apiVersion": "rayspan.dev/v1alpha1", "kind": "WorkerCluster", **spec}
    (tmp_path / "wc.yaml").write_text(yaml.safe_dump(raw))
    assert render(PLAIN, "--worker-cluster", tmp_path / "wc.yaml") == 0
    (pod,) = shown(capsys.readouterr().out)
    before, after = (one["spec"]["containers"][0]["args"] for one in (yaml.safe_load(PLAIN.read_text()), pod))
    assert after == before, "the Service's name resolves there"


def test_lists_documents_and_json_are_read(render: Any, capsys: Capture) -> None:
    as_kubectl_prints = {"apiVersion": "v1", "kind": "List", "items": [worker("a"), worker("b")]}
    assert render([as_kubectl_prints, {"kind": "PodList", "items": [worker("c")]}, worker("d")]) == 0
    assert [pod["metadata"]["name"] for pod in shown(capsys.readouterr().out)] == ["a", "b", "c", "d"]
    assert render(json.dumps(as_kubectl_prints)) == 0
    assert len(shown(capsys.readouterr().out)) == 2


def test_the_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(PLAIN.read_text()))
    monkeypatch.setattr(sys, "argv", ["rayspan", "render", "-f", "-"])
    assert command.main() == 0
    assert len(shown(capsys.readouterr().out)) == 1


def test_other_pods_are_skipped(render: Any, capsys: Capture) -> None:
    head = worker("head")
    head["metadata"]["labels"]["ray.io/node-type"] = "head"
    assert render([head, {"kind": "ConfigMap", "metadata": {"name": "x"}}, worker("w")]) == 0
    assert [pod["metadata"]["name"] for pod in shown(capsys.readouterr().out)] == ["w"]


def test_a_rejected_pod_does_not_hide_the_others(render: Any, capsys: Capture) -> None:
    assert render([worker("a", hostNetwork=True), worker("b")]) == 3
    said = capsys.readouterr()
    assert [pod["metadata"]["name"] for pod in shown(said.out)] == ["b"]
    assert said.err.startswith("Pod a: spec.hostNetwork is true: ") and said.err.endswith(".\n")


def test_additions_of_the_managers_admission_are_accepted(render: Any) -> None:
    """In a pod of the manager: its token, its account and its node."""
    token = {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    assert render([worker(nodeName="n", serviceAccountName="default", serviceAccount="default", volumes=[token])]) == 0


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster"])
def test_the_templates_of_a_job_are_shown(kind: str, render: Any, capsys: Capture) -> None:
    groups = [make_group(2), make_group(1, name="GPU")]
    assert render([make_ray_job(*groups, kind=kind)]) == 0
    out = capsys.readouterr().out
    assert [pod["metadata"]["name"] for pod in shown(out)] == [
        f"{builders.JOB}-workers-worker-0",
        f"{builders.JOB}-gpu-worker-0",
    ]
    assert out.count("# KubeRay adds the start command, the head's address and wait-gcs-ready later.") == 2
    assert f"# {kind} {builders.JOB}: worker group GPU in worker cluster worker" in out


def test_a_templates_pull_secrets_are_copied_with_it(render: Any, capsys: Capture) -> None:
    group = make_group(1)
    group["template"]["spec"]["imagePullSecrets"] = [{"name": "regcred"}]
    assert render([make_ray_job(group)]) == 0
    (pod,) = shown(capsys.readouterr().out)
    assert len(pod["spec"]["imagePullSecrets"]) == 1


def test_the_sample_is_accepted(render: Any) -> None:
    assert render(REPO / "manifests/samples/rayjob-pi.yaml") == 0


def test_a_job_is_rejected_for_its_groups_and_for_its_other_fields(render: Any, east: Path, capsys: Capture) -> None:
    bad = make_group(1, name="bad")
    bad["template"]["spec"] |= {"serviceAccountName": "ray"}
    assert render([make_ray_job(make_group(1), bad)]) == 3
    said = capsys.readouterr()
    assert len(shown(said.out)) == 1
    assert said.err.startswith(f"RayJob {builders.JOB}: worker group bad: spec.serviceAccountName is ray: ")
    assert render([make_ray_job(make_group(1), bad)], "--worker-cluster", east) == 0, "this cluster gives it an account"
    capsys.readouterr()
    assert render([make_ray_job(kind="RayCluster", tlsOptions={"enabled": True})]) == 3
    assert "spec.tlsOptions is set: " in capsys.readouterr().err


def test_all_faults_of_a_worker_are_reported(render: Any, tmp_path: Path, capsys: Capture) -> None:
    bad = make_group(1)
    bad["template"]["spec"] |= {"hostNetwork": True, "nodeName": "n"}
    bad["template"]["metadata"] = {"labels": {"rayspan.dev/manager": "x"}}
    assert render([make_ray_job(bad, kind="RayCluster", tlsOptions={"enabled": True})]) == 3
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" is ")[0].partition(" has ")[0] for line in told] == [
        f"RayCluster {builders.JOB}: spec.tlsOptions",
        f"RayCluster {builders.JOB}: worker group workers: spec.hostNetwork",
        f"RayCluster {builders.JOB}: worker group workers: spec.nodeName",
        f"RayCluster {builders.JOB}: worker group workers: metadata.labels",
    ]
    raw = builders.make_worker_cluster(source={}, maxUnavailable=0)
    (tmp_path / "wc.yaml").write_text(yaml.safe_dump({"kind": "WorkerCluster", **raw}))
    assert render([worker()], "--worker-cluster", tmp_path / "wc.yaml") == 2
    said = capsys.readouterr().err
    assert "WorkerCluster east: spec.source: " in said and "WorkerCluster east: spec.maxUnavailable: " in said


def service(**spec: Any) -> Raw:
    """The RayService with the sample's RayCluster."""
    cluster = make_ray_job(make_group(1), kind="RayCluster")["spec"]
    return {"kind": "RayService", "metadata": {"name": "s"}, "spec": {"rayClusterConfig": cluster, **spec}}


def test_the_workers_of_a_rayservice_are_those_of_its_raycluster(render: Any, capsys: Capture) -> None:
    assert render([service()]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("---\n# RayService s: worker group workers in worker cluster worker\n")
    (copy,) = shown(said.out)
    assert copy["metadata"]["labels"]["rayspan.dev/ray-cluster"] == "s"


def test_a_rayservice_with_an_incremental_upgrade_is_rejected(render: Any, capsys: Capture) -> None:
    assert render([service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"})]) == 3
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("RayService s: spec.upgradeStrategy.type is ")


def test_a_fault_of_the_whole_job_is_reported_once(render: Any, capsys: Capture) -> None:
    groups = [make_group(1), make_group(1, name="more")]
    assert render([make_ray_job(*groups, kind="RayCluster", enableInTreeAutoscaling=True)]) == 3
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert said.out == "" and line.startswith(f"RayCluster {builders.JOB}: spec.enableInTreeAutoscaling is true, ")


def test_a_field_of_a_rayservice_has_its_path_there(render: Any, capsys: Capture) -> None:
    raw = service()
    raw["spec"]["rayClusterConfig"].update(enableInTreeAutoscaling=True, authOptions={"mode": "token"})
    assert render([raw]) == 3
    faults = capsys.readouterr().err.splitlines()
    assert [line.partition(" is ")[0] for line in faults] == [
        "RayService s: spec.rayClusterConfig.authOptions.mode",
        "RayService s: spec.rayClusterConfig.enableInTreeAutoscaling",
    ]


HEAD_ONLY = {"workerGroupSpecs": [], "headGroupSpec": make_ray_job()["spec"]["rayClusterSpec"]["headGroupSpec"]}
SWAPPED = {"rayClusterSpec": make_ray_job(kind="RayCluster")["spec"]}


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        pytest.param(
            make_ray_job(clusterSelector={"a": "b"}, rayClusterSpec=None),
            f"RayJob {builders.JOB}: spec.clusterSelector names an existing RayCluster: ",
            id="a job in an existing RayCluster",
        ),
        pytest.param(
            make_ray_job(rayClusterSpec=HEAD_ONLY),
            f"RayJob {builders.JOB} has no worker group: its head runs in the manager cluster, ", id="a head alone",
        ),
        pytest.param(
            {"kind": "RayService", "metadata": {"name": "s"}, "spec": SWAPPED},
            "RayService s: spec.rayClusterConfig is missing, where a RayService has the spec of its RayCluster, not in "
            "spec.rayClusterSpec; ", id="a RayService with a RayJob's field",
        ),
        pytest.param(
            {"kind": "RayService", "metadata": {"name": "s"}}, "RayService s: spec.rayClusterConfig is missing, ",
            id="an empty RayService",
        ),
        pytest.param(
            {"kind": "RayService", "metadata": {"name": "s"}, "spec": {"rayClusterConfig": {"workerGroupSpecs": [5]}}},
            "RayService s: spec.rayClusterConfig.headGroupSpec.template.spec.containers is empty; ",
            id="a fault of a RayService's RayCluster",
        ),
        pytest.param(
            make_ray_job(make_group(1) | {"replicas": "$NUM_REPLICAS"}),
            f"RayJob {builders.JOB}: spec.rayClusterSpec.workerGroupSpecs[0].replicas is '$NUM_REPLICAS': ",
            id="a variable that was not filled in",
        ),
    ],
)  # fmt: skip
def test_a_job_without_remote_pods_is_one_sentence(raw: Raw, sentence: str, render: Any, capsys: Capture) -> None:
    assert render([raw]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(sentence), said.err


def test_what_kueue_does_not_queue_is_shown_with_the_line_that_lacks(render: Any, capsys: Capture) -> None:
    assert render([make_ray_job(make_group(1) | {"rayStartParams": None})]) == 0
    said = capsys.readouterr()
    assert len(shown(said.out)) == 1 and "lacks rayStartParams: {} in workerGroupSpecs[0] of spec" in said.err


def test_what_only_the_manager_has_is_warned_of(render: Any, capsys: Capture) -> None:
    group = make_group(1, rayStartParams={"address": "my-ray:6379"})
    group["template"]["spec"]["schedulerName"] = "kai-scheduler"
    assert render([make_ray_job(group)]) == 0
    said = capsys.readouterr()
    assert len(shown(said.out)) == 1 and len(said.err.splitlines()) == 2
    assert "rayStartParams.address is my-ray:6379" in said.err and "schedulerName is kai-scheduler" in said.err


NOT_TEXT = [
    ({"nodeSelector": {"gpus": 8}}, "spec.nodeSelector has gpus: 8, which is a number: "),
    ({"containers": [{"name": "r", "image": "ray", "env": [{"name": "DEBUG", "value": True}]}]},
     "spec.containers[0].env[DEBUG].value is true, which is a boolean: "),
    ({"containers": [{"name": "r", "image": "ray", "args": ["--port", 80]}]}, "spec.containers[0].args has 80, which "),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "fault"), NOT_TEXT)
def test_no_pod_is_printed_that_an_api_server_rejects(spec: Raw, fault: str, render: Any, capsys: Capture) -> None:
    group = make_group(1)
    group["template"]["spec"] |= spec
    assert render([make_ray_job(group)]) == 2
    said = capsys.readouterr()
    whose = f"RayJob {builders.JOB}: spec.rayClusterSpec.workerGroupSpecs[0].template."
    assert said.out == "" and said.err.startswith(f"{whose}{fault}"), said.err
    assert render([worker(**spec)]) == 2
    assert capsys.readouterr().err.startswith(f"Pod w: {fault}")


@pytest.mark.parametrize("text", ["1e3", "12e4567", "y", "N", "8", "yes", ".5", "0x1f", "1_000", "+1.", "no", "~", ""])
def test_texts_like_numbers_are_quoted(text: str, render: Any, capsys: Capture) -> None:
    """kubectl's YAML reads more words as numbers and booleans than Python's."""
    assert render([worker(nodeSelector={"commit": text})]) == 0
    said = capsys.readouterr().out
    assert shown(said)[0]["spec"]["nodeSelector"]["commit"] == text
    assert re.search(r"^ +commit: ['\"]", said, re.MULTILINE)


BAD = [
    ("a: [", "The file is not YAML, see line 1.\n"),
    ("", "The file holds no Ray worker: "),
    ("&a {kind: List, items: [*a]}", "The file holds no Ray worker: "),
    ("just words", "The file holds no Ray worker: "),
    ([{"kind": "Service"}], "The file holds no Ray worker: "),
    ([{"kind": "Pod", "metadata": 5}], "The file holds no Ray worker: "),
    ([worker(containers=5)], "Pod w cannot be read; `kubectl apply --dry-run=server` shows what is wrong with it.\n"),
    ([worker(volumes=[5])], "Pod w cannot be read; "),
    (
        [{"kind": "RayJob", "metadata": {"name": "j"}, "spec": {"rayClusterSpec": {"workerGroupSpecs": [5]}}}],
        "RayJob j: spec.rayClusterSpec.headGroupSpec.template.spec.containers is empty; ",
    ),
    ([make_ray_job(make_group(1, template=[1]))], f"RayJob {builders.JOB}: spec.rayClusterSpec.workerGroupSpecs[0].t"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "sentence"), BAD, ids=[row[1][:40] + str(at) for at, row in enumerate(BAD)])
def test_bad_input_is_one_sentence(given: Any, sentence: str, render: Any, capsys: Capture) -> None:
    assert render(given) == 2
    said = capsys.readouterr()
    assert said.err.startswith(sentence) and said.out == ""


def test_unusable_files_are_reported(render: Any, tmp_path: Path, capsys: Capture) -> None:
    assert render(tmp_path / "nowhere") == 2
    assert capsys.readouterr().err == f"{tmp_path / 'nowhere'} cannot be read: No such file or directory.\n"
    assert render(PLAIN, "--worker-cluster", PLAIN) == 2
    assert capsys.readouterr().err == f"{PLAIN} must hold one WorkerCluster, found 0.\n"
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("{kind: WorkerCluster, metadata: {name: e}, spec: {source: {}}}")
    assert render(PLAIN, "--worker-cluster", wrong) == 2
    assert capsys.readouterr().err.startswith("WorkerCluster e: spec.source: ")


def test_a_comment_ends_with_its_line(render: Any, capsys: Capture) -> None:
    """The output goes into kubectl; a key in the file must not become an object."""
    pod = worker()
    pod["metadata"]["annotations"] = {"volcano.sh/x\n---\nkind: Secret": "y"}
    assert render([pod]) == 0
    assert [one["kind"] for one in shown(capsys.readouterr().out)] == ["Pod"]


def test_a_pasted_job_keeps_its_limits(render: Any, capsys: Capture) -> None:
    """Its workers have limits only, and neither rayStartParams nor minReplicas and maxReplicas."""
    assert render(REPO / "tests" / "corpus" / "llama-finetune-pasted.yaml") == 0
    (pod,) = shown(capsys.readouterr().out)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "4"}
    assert container["image"] == "rayproject/ray-ml:2.9.0-gpu"
