"""The components admission and admission-gate on real API servers: warnings on apply, the gate, and no effect once they
are dead.

With the deployed controller and real kubectl. The API server calls the webhooks by the Service, over TLS, with the
authority that the Job has put into the configurations.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.lab import Lab
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed import clusters
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rights import Row, may, wrong
from hack.testbed.stage import QUEUE, Stage, added, local_queue, ray_cluster
from hack.trials import restore
from hack.trials.chaos import restarts

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("deployed")]

WEBHOOKS = "system:serviceaccount:rayspan-system:rayspan-admission"
CERTIFICATE = "system:serviceaccount:rayspan-system:rayspan-admission-certificate"


@pytest.fixture(scope="module")
def manager(fleet: Clusters) -> Iterator[Cluster]:
    """The manager, with both components."""
    with added(fleet.manager, "admission-gate"), added(fleet.manager, "admission"):
        _await_served(fleet.manager)
        yield fleet.manager


def _await_served(manager: Cluster) -> None:
    def there() -> bool:
        status = manager.get("deployment", names.ADMISSION_COMPONENT, names.SYSTEM_NAMESPACE).get("status") or {}
        return bool(status.get("availableReplicas") == 2)

    wait(there, 150, "both replicas are ready", lambda: _pods(manager))

    def served() -> bool:
        return "Warning: " in _applied(manager, {**_policy(("nowhere",)), "metadata": {"name": "served"}}, dry=True)

    wait(served, 60, "the API server asks the webhooks", lambda: _log(manager))


def _pods(manager: Cluster) -> str:
    """How they are, and their Job's."""
    chosen = "app.kubernetes.io/component in (admission, admission-certificate)"
    return manager.kubectl("-n", names.SYSTEM_NAMESPACE, "describe", "pods", "-l", chosen)


def _log(manager: Cluster) -> str:
    return manager.kubectl(
        "-n", names.SYSTEM_NAMESPACE, "logs", f"deployment/{names.ADMISSION_COMPONENT}", "--all-pods"
    )


def _applied(manager: Cluster, raw: Raw, *, dry: bool) -> str:
    """What kubectl says on its standard error as it applies an object; Kueue may deny what is warned of."""
    words = [clusters.program(), f"--kubeconfig={manager.kubeconfig}", "apply", "-f", "-"]
    done = subprocess.run(
        [*words, *(["--dry-run=server"] if dry else [])],
        input=yaml.safe_dump(raw), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert dry or done.returncode == 0, done.stderr
    return done.stderr


def _warned(stage: Stage, raw: Raw) -> list[str]:
    return re.findall(r"^Warning: (.*)$", _applied(stage.manager, raw, dry=True), re.MULTILINE)


def _told(stage: Stage, raw: Raw, says: str) -> list[str]:
    """The expected warnings, once there are any: on a busy machine some come too late, and the API server goes on
    without."""

    def found() -> list[str]:
        warned = _warned(stage, raw)
        return warned if says in "".join(warned) else []

    return wait(found, 20, says, lambda: str(_warned(stage, raw)))


def _policy(chosen: tuple[str, ...]) -> Raw:
    spec = {"clusters": {"names": [*chosen]}}
    return {"apiVersion": names.API_VERSION, "kind": "DispatchPolicy", "metadata": {"name": "warned"}, "spec": spec}


def _job(stage: Stage, kind: str = "RayCluster", **labels: str) -> Raw:
    """A RayCluster as tests have them, or the same as a RayJob or in a RayService."""
    made: Raw = ray_cluster("pi", stage.name, {"workers": 2})
    made["metadata"]["labels"] = {names.QUEUE_LABEL: QUEUE} | labels
    if kind == "RayCluster":
        return made
    spec = made.pop("spec")
    spec.pop("suspend", None)
    if kind == "RayJob":
        made["spec"] = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": spec}
    else:
        made["spec"] = {"serveConfigV2": "applications: []", "rayClusterConfig": spec}
    return {**made, "kind": kind}


def _templates(raw: Raw) -> Iterator[Raw]:
    spec = raw["spec"]
    for group in (spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec)["workerGroupSpecs"]:
        yield group["template"]["spec"]


# --- warnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
def test_all_that_is_refused_is_told_at_once(manager: Cluster, stage: Stage, kind: str) -> None:
    stage.build({"east": 2})
    job = _job(stage, kind)
    for pod in _templates(job):
        pod["hostNetwork"] = True
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    who = f"{kind} pi: worker group workers: spec."
    wanted = [
        f"{who}hostNetwork is true: a worker needs a pod IP of its own, which the other clusters can reach; remove it.",
        f"{who}volumes[data].persistentVolumeClaim is data: no WorkerCluster of the policy names it for namespace "
        f"{stage.name}; an administrator can add spec.pods.persistentVolumeClaims: [{{name: data, namespaces: "
        f"[{stage.name}]}}] to WorkerCluster east or west, or use emptyDir or object storage.",
    ]
    wait(lambda: _warned(stage, job) == wanted, 20, "both are told", lambda: f"{_warned(stage, job)} {_log(manager)}")
    assert stage.manager.get(f"{kind.lower()}s", "pi", stage.name) == {}, "a dry run leaves nothing"
    _applied(stage.manager, job, dry=False)
    assert stage.manager.get(f"{kind.lower()}s", "pi", stage.name), "and nothing is denied"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("svc-in-env", "spec.containers[ray-worker].env[MODEL_URL] has embedder.corpus.svc.cluster.local"),
        ("node-address", "rayStartParams.node-ip-address is $MY_NAME.ray-workers.corpus.svc.cluster.local, a name"),
        ("own-address", "rayStartParams.address is my-ray-head.corpus.svc.cluster.local:6379"),
        ("other-scheduler", "spec.schedulerName is kai-scheduler: it is removed in worker clusters"),
    ],
)
def test_what_differs_in_a_worker_cluster_is_told(manager: Cluster, stage: Stage, name: str, says: str) -> None:
    """What people bring: such a job is dispatched, and its user learns at `kubectl apply` what will not be the same."""
    stage.build({"east": 1})
    job: Raw = yaml.safe_load((REPO / "tests/corpus/shapes" / f"{name}.yaml").read_text())
    job["metadata"] |= {"namespace": stage.name, "labels": {names.QUEUE_LABEL: QUEUE}}
    warned = _told(stage, job, says)
    assert sum(says in line for line in warned) == 1
    assert all(line.startswith(f"{job['kind']} {name}") for line in warned)


def test_a_field_of_a_rayservice_is_named_as_its_file_has_it(manager: Cluster, stage: Stage) -> None:
    stage.build({"east": 1})
    job: Raw = yaml.safe_load((REPO / "tests/corpus/shapes/service-that-grows.yaml").read_text())
    job["metadata"] |= {"namespace": stage.name, "labels": {names.QUEUE_LABEL: QUEUE}}
    told = _told(stage, job, "spec.rayClusterConfig.enableInTreeAutoscaling is true")
    assert any(names.JOB_DEFAULTS_LABEL in line for line in told)


@pytest.mark.long
def test_a_job_that_goes_another_way_is_told_of_it(manager: Cluster, stage: Stage) -> None:
    stage.build({"east": 2})
    queue = stage.add(stage.manager, "ClusterQueue", {"spec": {"namespaceSelector": {}}}, f"{stage.name}-u")
    stage.manager.apply(yaml.safe_dump(local_queue("unchecked", stage.name, queue)))
    for label, said in (
        ("gold", f"namespace {stage.name} has no LocalQueue gold, it has ray, unchecked"),
        ("unchecked", f"ClusterQueue {queue} of LocalQueue unchecked has no AdmissionCheck of rayspan.dev/dispatch"),
    ):
        job = _job(stage, **{names.QUEUE_LABEL: label})
        assert len(_told(stage, job, said)) == 1
    job = _job(stage)
    job["metadata"]["labels"] = {}
    (said,) = _told(stage, job, "so it waits in no queue")
    assert said.startswith("RayCluster pi: metadata.labels has no kueue.x-k8s.io/queue-name, so it waits in no queue")


def test_what_would_fit_now_is_told(manager: Cluster, stage: Stage) -> None:
    """As `kubectl rayspan plan` says it, to people who have it not."""
    stage.build({"east": 1, "west": 1})
    wanted = ["RayCluster pi fits now: 1 of 2 workers to east, 1 to west."]
    wait(
        lambda: _warned(stage, _job(stage)) == wanted, 60, "the plan is told", lambda: str(_warned(stage, _job(stage)))
    )


def test_what_admins_write_is_warned_of(manager: Cluster, stage: Stage) -> None:
    stage.build({"east": 1})
    assert _told(stage, _policy(("nowhere",)), "nowhere") == [
        "DispatchPolicy warned: spec.clusters.names has WorkerCluster nowhere, which does not exist; join it "
        "(`kubectl rayspan join`), or remove it."
    ]
    spec = {"source": {"kubeConfig": {"secretRef": {"name": "nowhere"}}}}
    cluster = {"apiVersion": names.API_VERSION, "kind": "WorkerCluster", "metadata": {"name": "nowhere"}, "spec": spec}
    (said,) = _told(stage, cluster, "nowhere")
    assert said.startswith("WorkerCluster nowhere: no DispatchPolicy considers it, so no workers go there")
    assert _warned(stage, _policy(("east",))) == []


@pytest.mark.long
def test_kuberay_and_kueue_are_not_warned(manager: Cluster, stage: Stage) -> None:
    """They write to the same objects all the time: what is asked for a job that runs is what its user applied."""
    stage.build({"east": 1})
    before = _asked(manager)
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "it runs", lambda: _log(manager))
    assert _asked(manager) - before == 1


def _asked(manager: Cluster) -> int:
    """How often the API server has asked for warnings of the kinds of KubeRay."""
    text = manager.kubectl("get", "--raw", "/metrics")
    found = re.findall(
        r'^apiserver_admission_webhook_request_total\{[^}]*name="warnings.rayspan.dev"[^}]*\} (\d+)', text, re.MULTILINE
    )
    return sum(int(one) for one in found)


# --- dead ------------------------------------------------------------------------------------------------------------


def test_dead_webhooks_change_nothing(manager: Cluster, stage: Stage) -> None:
    """No webhook answers: objects are applied, no API server waits as long as it would by default, and foreign pods
    start."""
    stage.build({"east": 1})
    scale = ("-n", names.SYSTEM_NAMESPACE, "scale", f"deployment/{names.ADMISSION_COMPONENT}")
    manager.kubectl(*scale, "--replicas=0")
    try:
        gone = f"app.kubernetes.io/component={names.ADMISSION_COMPONENT.removeprefix('rayspan-')},pod-template-hash"
        wait(lambda: not manager.items("pods", names.SYSTEM_NAMESPACE, gone), 60, "the webhooks are gone")
        began = time.monotonic()
        assert _applied(manager, _job(stage), dry=False) == ""
        assert (
            time.monotonic() - began < 10
        )  # by default a webhook is waited for as long; kubectl itself took six on a busy machine
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs", "namespace": stage.name}}
        assert _applied(manager, {**pod, "spec": {"containers": [{"name": "a", "image": "a"}]}}, dry=True) == ""
    finally:
        manager.kubectl(*scale, "--replicas=2")
        _await_served(manager)


@pytest.mark.long  # the short tier asks of dead ones
def test_webhooks_that_hang_change_nothing(manager: Cluster, stage: Stage, lab: Lab) -> None:
    """They accept connections and never answer, as a stopped process does.

    Objects are applied, without a warning, as soon as the API server has waited for as long as the webhook's
    configuration says.
    """
    stage.build({"east": 1})
    configured = manager.get("validatingwebhookconfigurations", names.WARNINGS_CONFIGURATION)["webhooks"][0][
        "timeoutSeconds"
    ]
    webhooks = restarts.admission(manager, lab.manager)
    try:
        with ExitStack() as still:
            for process in webhooks.processes():
                still.enter_context(restore.frozen(process))
            before, began = _passed_over(manager), time.monotonic()
            assert _applied(manager, _job(stage), dry=False) == ""
            took = time.monotonic() - began
            assert _passed_over(manager) == before + 1
        assert manager.get("rayclusters", "pi", stage.name)
        # It waited for an answer, and for no more than that; kubectl itself takes a second or two on a busy machine.
        assert configured <= took < configured + 5
    finally:
        _await_served(manager)


def _passed_over(manager: Cluster) -> int:
    """How often the API server went on without an answer of the one that warns."""
    text = manager.kubectl("get", "--raw", "/metrics")
    found = re.findall(
        r'^apiserver_admission_webhook_fail_open_count\{[^}]*name="warnings.rayspan.dev"[^}]*\} (\d+)',
        text,
        re.MULTILINE,
    )
    return sum(int(one) for one in found)


# --- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_webhook_is_a_gate_by_itself(manager: Cluster, stage: Stage) -> None:
    """Without the policy's binding, as before Kubernetes 1.36: the check stays Ready, and workers are held and run
    elsewhere."""
    binding = manager.get("mutatingadmissionpolicybindings", names.GATE_POLICY)
    manager.kubectl("delete", "mutatingadmissionpolicybinding", names.GATE_POLICY)
    try:
        stage.build({"east": 1})
        stage.ray_cluster("pi", workers=1)
        wait(lambda: stage.running(1), 90, "the worker runs", lambda: f"{stage.events('pi')} {_log(manager)}")
        (worker,) = stage.workers()
        assert {"name": names.GATE} in worker["spec"]["schedulingGates"]
        assert "nodeName" not in worker["spec"]
        assert condition(manager.get("admissionchecks", stage.name), names.ACTIVE)["reason"] == "Ready"

        field = json.dumps([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}])
        change = ("patch", "mutatingwebhookconfiguration", names.GATE_POLICY, "--type=json", "-p")
        manager.kubectl(*change, field)
        wait(lambda: _reason(stage) == "GateMissing", 30, "a gate that can be passed by is none")
        manager.kubectl(*change, field.replace("Ignore", "Fail"))
        wait(lambda: _reason(stage) == "Ready", 30, "and is one again")
    finally:
        kept = {key: binding["metadata"][key] for key in ("name", "labels")}
        manager.apply(yaml.safe_dump({**binding, "metadata": kept}))


def test_a_worker_that_is_too_large_for_the_gate_is_denied_in_a_sentence(manager: Cluster, stage: Stage) -> None:
    """And one that is not is taken, by the same connections of the API server."""
    stage.build({"east": 1})
    about = {"name": "large", "namespace": stage.name, "labels": {names.PLACEMENT_LABEL: "pi"}}
    create = ("create", "--dry-run=server", "-f", "-", "-o", "name")
    for size, said in (
        (600_000, "and the gate of worker pods takes 512 KiB at most: move what is long"),
        (400_000, ""),
    ):
        spec = {"containers": [{"name": "a", "image": "a", "args": ["x" * size]}]}
        pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        if said:
            with pytest.raises(LabError, match=said):
                manager.kubectl(*create, input=pod)
        else:
            assert manager.kubectl(*create, input=pod) == "pod/large\n"


def _reason(stage: Stage) -> str:
    return str(condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE).get("reason"))


# --- rights ----------------------------------------------------------------------------------------------------------

WEBHOOK_ROWS: list[Row] = [
    ("list", "localqueues.kueue.x-k8s.io", "-A", True),
    ("watch", "clusterqueues.kueue.x-k8s.io", "", True),
    ("list", "admissionchecks.kueue.x-k8s.io", "", True),
    ("list", "workerclusters.rayspan.dev", "", True),
    ("list", "dispatchpolicies.rayspan.dev", "", True),
    ("create", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", True),
    ("get", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", False),
    ("create", "services/rayspan-admission:webhooks", "-n rayspan-system --subresource=proxy", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("get", "secrets/rayspan-admission", "-n rayspan-system", False),
    ("list", "workloads.kueue.x-k8s.io", "-A", False),
    ("list", "rayjobs.ray.io", "-A", False),
    ("list", "pods", "-A", False),
    ("create", "pods", "-n default", False),
    ("patch", "workerclusters.rayspan.dev", "", False),
    ("get", "mutatingwebhookconfigurations/rayspan-gate", "", False),
    ("patch", "mutatingwebhookconfigurations/rayspan-gate", "", False),
    ("list", "customresourcedefinitions", "", False),
    ("list", "namespaces", "", False),
    ("create", "events", "-n default", False),
]
CERTIFICATE_ROWS: list[Row] = [
    ("patch", "mutatingwebhookconfigurations/rayspan-gate", "", True),
    ("patch", "validatingwebhookconfigurations/rayspan-warnings", "", True),
    ("get", "validatingwebhookconfigurations/rayspan-warnings", "", True),
    ("patch", "mutatingwebhookconfigurations/rayspan-warnings", "", False),
    ("patch", "mutatingwebhookconfigurations/kueue-mutating-webhook-configuration", "", False),
    ("delete", "mutatingwebhookconfigurations/rayspan-gate", "", False),
    ("create", "validatingwebhookconfigurations", "", False),
    ("list", "mutatingwebhookconfigurations", "", False),
    ("get", "secrets/rayspan-admission", "-n rayspan-system", True),
    ("patch", "secrets/rayspan-admission", "-n rayspan-system", True),
    ("get", "secrets/east", "-n rayspan-system", False),
    ("list", "secrets", "-n rayspan-system", False),
    ("create", "secrets", "-n rayspan-system", False),
    ("list", "workerclusters.rayspan.dev", "", False),
    ("create", "services/rayspan-controller:plan", "-n rayspan-system --subresource=proxy", False),
]


def test_what_the_webhooks_may_do(manager: Cluster) -> None:
    manager.wait(lambda: may(manager, WEBHOOKS, *WEBHOOK_ROWS[0][:3]), 20, "the right is known")
    assert wrong(manager, WEBHOOKS, WEBHOOK_ROWS) == []


def test_what_their_certificates_job_may_do(manager: Cluster) -> None:
    manager.wait(lambda: may(manager, CERTIFICATE, *CERTIFICATE_ROWS[0][:3]), 20, "the right is known")
    assert wrong(manager, CERTIFICATE, CERTIFICATE_ROWS) == []
