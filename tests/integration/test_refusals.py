"""Every mistake is reported in a message on the object that its author looks at, while the rest keeps working."""

import base64
import json

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed import rayservice
from hack.testbed.auditlog import Written, gangs
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

BROKEN = "it-broken"


def test_wrong_kubeconfig_is_told_and_costs_the_others_nothing(stage: Stage, running: Controller) -> None:
    """A WorkerCluster whose Secret is missing, then nonsense, then of an unknown address: a condition each time."""
    stage.clusters = (BROKEN, "east")
    stage.build({"east": 2})
    manager = stage.manager
    _broken(stage, BROKEN)
    _expect(stage, f"Secret {BROKEN} does not exist in {names.SYSTEM_NAMESPACE}", running)

    _put_secret(stage, "this: is no kubeconfig")
    _expect(stage, "holds no usable kubeconfig", running)

    _put_secret(stage, yaml.safe_dump(_kubeconfig("https://10.240.0.250:6443")))
    _expect(stage, "is unreachable", running)

    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both workers run in east", running.tail)
    assert f"{BROKEN} passed over" in stage.reason("pi")
    manager.delete("secret", BROKEN, names.SYSTEM_NAMESPACE)


@pytest.mark.long
def test_a_service_that_kueue_takes_for_one_job_says_what_to_change(stage: Stage, running: Controller) -> None:
    """Stock Kueue, as it is configured when nobody has changed it."""
    stage.build({"east": 4})
    stage.manager.apply(yaml.safe_dump(rayservice.of(ray_cluster("chat", stage.name, {"workers": 1}))))
    wait(lambda: "integrations.frameworks" in stage.events("chat").get("Rejected", ""), 60, "it says so", running.tail)
    assert names.RAY_SERVICE_FRAMEWORK in stage.told("chat", "Rejected")


def test_missing_namespace_and_queue_are_named(stage: Stage, running: Controller) -> None:
    """West has no such namespace, and later the namespace without a queue: passed over with that reason."""
    stage.build({"east": 1})
    stage.ray_cluster("pi", workers=2)
    missing = f"west has capacity for 0 (no namespace {stage.name} there"
    wait(lambda: missing in _reason(stage), 60, "it waits", running.tail)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 10, "its state says so too", running.tail)
    west = stage.fleet.workers["west"]
    west.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.name}}))
    wait(
        lambda: "no LocalQueue ray in namespace" in _reason(stage), 30, "the missing LocalQueue is named", running.tail
    )
    wait(lambda: stage.check("pi")["message"] == _reason(stage), 30, "the check says the same")


@pytest.mark.usefixtures("audited")
@pytest.mark.alone
def test_missing_gate_policy_holds_everything(stage: Stage, running: Controller) -> None:
    """Without the admission policy no gang turns Ready: its workers would start in the manager."""
    manager = stage.manager
    binding = manager.get("mutatingadmissionpolicybindings", names.GATE_POLICY)
    manager.kubectl("delete", "mutatingadmissionpolicybinding", names.GATE_POLICY)
    try:
        stage.build({"east": 1})
        written = Written(stage)
        stage.ray_cluster("pi", workers=1)
        wait(
            lambda: "MutatingAdmissionPolicyBinding" in stage.events("pi").get("FailedDispatch", ""),
            60,
            "the job says so",
            running.tail,
        )
        check = manager.get("admissionchecks", stage.name)
        assert condition(check, names.ACTIVE)["reason"] == "GateMissing"
        assert stage.check("pi")["state"] == names.CHECK_PENDING
        assert written.take() == [], "no cluster was asked for anything"
    finally:
        manager.apply(yaml.safe_dump(_again(binding)))
    wait(lambda: stage.running(1), 90, "with the policy back, the worker runs", running.tail)
    assert written.take(), "what is asked of clusters shows in their logs"


def test_check_without_a_policy_is_inactive(stage: Stage, running: Controller) -> None:
    """An AdmissionCheck whose DispatchPolicy does not exist says so, and is Active once it does."""
    stage.build({"east": 1})
    manager = stage.manager
    manager.kubectl("delete", "dispatchpolicy", stage.name)
    wait(lambda: _active(stage).get("reason") == "BadParameters", 30, "the check is inactive", running.tail)
    assert f"names DispatchPolicy {stage.name}, which does not exist" in _active(stage)["message"]
    manager.apply(
        f"{{apiVersion: {names.API_VERSION}, kind: DispatchPolicy, metadata: "
        f"{{name: {stage.name}}}, spec: {{clusters: {{names: [east]}}}}}}"
    )
    wait(lambda: _active(stage).get("status") == "True", 30, "the check is active", running.tail)


@pytest.mark.long
def test_readiness_follows_what_its_admin_mends(stage: Stage, running: Controller) -> None:
    """A wrong kubeconfig and an unknown name: Ready is False with a message, of this generation, and True after the
    repair."""
    stage.clusters = (BROKEN, "east")
    stage.build({"east": 1})
    _ready(stage, "dispatchpolicies", stage.name, "False", f"has WorkerCluster {BROKEN}, which does not exist", running)
    _put_secret(stage, "this: is no kubeconfig")
    _broken(stage, BROKEN)
    _ready(stage, "dispatchpolicies", stage.name, "True", f"Considers {BROKEN}, east.", running)
    _ready(stage, "workerclusters", BROKEN, "False", "holds no usable kubeconfig", running)
    stage.manager.delete("workercluster", BROKEN)
    _ready(stage, "dispatchpolicies", stage.name, "False", "which does not exist", running)

    mended = stage.own("east")
    _ready(stage, "workerclusters", mended, "True", "New workers may go there.", running)
    _spec(stage, "workercluster", mended, {"cordoned": True})
    _ready(stage, "workerclusters", mended, "True", "It is cordoned", running)
    _spec(stage, "workercluster", mended, {"source": {"kubeConfig": {"secretRef": {"name": BROKEN}}}})
    _ready(stage, "workerclusters", mended, "False", "holds no usable kubeconfig", running)
    _spec(
        stage, "workercluster", mended, {"source": {"kubeConfig": {"secretRef": {"name": "east"}}}, "cordoned": False}
    )
    _ready(stage, "workerclusters", mended, "True", "New workers may go there.", running)
    _spec(stage, "dispatchpolicy", stage.name, {"clusters": {"names": [mended]}})
    _ready(stage, "dispatchpolicies", stage.name, "True", f"Considers {mended}.", running)
    stage.manager.kubectl("wait", f"dispatchpolicy/{stage.name}", "--for=condition=Ready", "--timeout=5s")
    stage.manager.delete("secret", BROKEN, names.SYSTEM_NAMESPACE)


@pytest.mark.usefixtures("audited")
def test_what_cannot_run_remotely_is_refused_before_any_quota_is_held(stage: Stage, running: Controller) -> None:
    """A worker with a hostPath volume: Rejected with object, field and way out; no share was ever asked for."""
    stage.build({"east": 1})
    written = Written(stage)
    body = ray_cluster("pi", stage.name, {"workers": 1})
    spec = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: "Rejected" in stage.events("pi"), 60, "the job says so", running.tail)
    assert "RayCluster pi: worker group workers" in stage.told("pi", "Rejected")
    assert "hostPath" in stage.told("pi", "Rejected")
    stage.ray_cluster("good", workers=1)
    wait(lambda: stage.running(1), 90, "a job that may goes on beside it", running.tail)
    assert gangs(written.take()) == {stage.placement("good")["metadata"]["name"]}


@pytest.mark.parametrize(
    ("group", "want"),
    [
        pytest.param({"minReplicas": 2, "maxReplicas": 4}, "replicas is 0 and minReplicas 2", id="none are named"),
        pytest.param(
            {"replicas": 4, "minReplicas": 0, "maxReplicas": 2},
            "set replicas to 2",
            id="too many",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_kuberay_counts_otherwise_than_kueue_is_refused(
    stage: Stage, running: Controller, group: Raw, want: str
) -> None:
    """It made workers in the manager, on no quota, or held quota for nobody."""
    stage.build({"east": 4})
    body = ray_cluster("pi", stage.name, {"workers": 1})
    found = body["spec"]["workerGroupSpecs"][0]
    for key in ("replicas", "minReplicas", "maxReplicas"):
        del found[key]
    found |= group
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: want in stage.events("pi").get("Rejected", ""), 60, "the job says so", running.tail)
    assert stage.workers() == [], "nobody made a worker of it"


def _expect(stage: Stage, text: str, running: Controller) -> None:
    def told() -> bool:
        found = condition(stage.manager.get("workerclusters", BROKEN), names.CONNECTED)
        return found.get("status") in ("False", "Unknown") and text in str(found.get("message"))

    wait(told, 45, f"WorkerCluster {BROKEN} says: {text}", running.tail)


def _broken(stage: Stage, name: str) -> None:
    """A WorkerCluster whose kubeconfig is in a Secret of the same name."""
    stage.manager.apply(
        f"{{apiVersion: {names.API_VERSION}, kind: WorkerCluster, metadata: {{name: {name}}}, "
        f"spec: {{source: {{kubeConfig: {{secretRef: {{name: {name}}}}}}}}}}}"
    )
    stage.made.append((stage.manager, "workerclusters", name))


def _spec(stage: Stage, kind: str, name: str, spec: Raw) -> None:
    stage.manager.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))


def _ready(stage: Stage, kind: str, name: str, status: str, text: str, running: Controller) -> None:
    """Wait until the condition Ready, and the status, are of the generation that stands there, and say that."""

    def told() -> bool:
        raw = stage.manager.get(kind, name)
        found, generation = condition(raw, names.READY), raw["metadata"]["generation"]
        current = found.get("observedGeneration") == raw.get("status", {}).get("observedGeneration") == generation
        return current and found["status"] == status and text in found["message"]

    wait(told, 45, f"{kind} {name} is Ready {status}: {text}", running.tail)


def _put_secret(stage: Stage, text: str) -> None:
    data = {names.KUBECONFIG_KEY: base64.b64encode(text.encode()).decode()}
    metadata = {"name": BROKEN, "namespace": names.SYSTEM_NAMESPACE}
    stage.manager.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))


def _kubeconfig(server: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
    }


def _reason(stage: Stage) -> str:
    return str((stage.placement("pi").get("spec") or {}).get("explanation") or "")


def _active(stage: Stage) -> Raw:
    return condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE)


def _again(found: Raw) -> Raw:
    return {**found, "metadata": {"name": found["metadata"]["name"]}}
