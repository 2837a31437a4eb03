"""Is the gate in place, by the policy or by the webhook; and does the webhook write what the policy writes?"""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.admission import gate
from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.paths import REPO

GATE = {"rayspan-gate": {"metadata": {"name": "rayspan-gate"}}}
BINDING = {"rayspan-gate": {"metadata": {"name": "rayspan-gate"}, "spec": {"policyName": "rayspan-gate"}}}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
MANIFEST = REPO / "kustomize/components/admission-gate/webhook.yaml"


def configuration(**changed: Any) -> dict[str, Raw]:
    """The shipped configuration, as it is once its Job was there, with some fields of its webhook changed."""
    (shipped,) = (one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["metadata"]["name"] == "rayspan-gate")
    raw = copy.deepcopy(shipped)
    (webhook,) = raw["webhooks"]
    webhook["clientConfig"]["caBundle"] = "LS0t"
    webhook.update(changed)
    return {"rayspan-gate": raw}


@pytest.mark.parametrize(
    ("policies", "bindings", "missing"),
    [
        pytest.param(GATE, BINDING, "", id="both are there"),
        pytest.param({}, BINDING, "MutatingAdmissionPolicy rayspan-gate", id="no policy"),
        pytest.param({}, {}, "MutatingAdmissionPolicy rayspan-gate", id="neither: the policy is told first"),
        pytest.param({"other": {}}, BINDING, "MutatingAdmissionPolicy rayspan-gate", id="somebody else's policy"),
        pytest.param(GATE, {}, "MutatingAdmissionPolicyBinding rayspan-gate", id="no binding"),
        pytest.param(
            GATE,
            {"rayspan-gate": {"spec": {"policyName": "other"}}},
            "MutatingAdmissionPolicyBinding rayspan-gate",
            id="a binding of another policy",
        ),
        pytest.param(
            GATE, {"rayspan-gate": {"spec": None}}, "MutatingAdmissionPolicyBinding rayspan-gate", id="an empty binding"
        ),
    ],
)
def test_the_policy_alone(policies: Raw, bindings: Raw, missing: str) -> None:
    said = (
        f"{missing} is missing in the manager cluster, so worker pods would start there; apply manifests/gate-policy.yaml, or, before "
        "Kubernetes 1.36, kustomize/overlays/manager-webhook."
    )
    assert gate.problem(policies, bindings, {}, now=NOW) == (said if missing else "")


@pytest.mark.parametrize(
    ("policies", "bindings"),
    [({}, {}), (GATE, {}), (GATE, BINDING)],
    ids=["no policy", "no binding", "the policy as well"],
)
def test_the_webhook_is_enough(policies: Raw, bindings: Raw) -> None:
    assert gate.problem(policies, bindings, configuration(), now=NOW) == ""


def test_a_webhook_that_is_not_well_takes_nothing_from_the_policy() -> None:
    assert gate.problem(GATE, BINDING, configuration(failurePolicy="Ignore"), now=NOW) == ""


def test_a_webhook_that_refuses_every_worker_is_told_beside_the_policy() -> None:
    """It was added after its Job had run, or before: no worker is made until somebody applies that again."""
    found = configuration(clientConfig={"service": {}})
    assert gate.problem(GATE, BINDING, found, now=NOW) == (
        "MutatingWebhookConfiguration rayspan-gate: webhook gate.rayspan.dev has no clientConfig.caBundle, so the API server calls nobody, and refuses each worker pod, "
        "though MutatingAdmissionPolicy rayspan-gate holds them, too; apply kustomize/components/admission again, after admission-gate, and see Job "
        "rayspan-admission-certificate in rayspan-system; or delete that configuration."
    )
    found["rayspan-gate"]["webhooks"][0]["rules"] = []
    assert gate.problem(GATE, BINDING, found, now=NOW) == "", "it is asked of no pod"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"name": "other.rayspan.dev"}, "is not there"),
        ({"failurePolicy": "Ignore"}, "has failurePolicy Ignore, not Fail"),
        ({"rules": []}, "has no rule for the creation of pods"),
        ({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]}, "has no rule"),
        ({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster"}]}, "has no rule"),
        ({"objectSelector": {"matchLabels": {"team": "a"}}}, "has an objectSelector that is not rayspan.dev/placement alone"),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "has a namespaceSelector, which leaves namespaces out"),
        ({"matchConditions": [{"name": "mine", "expression": "false"}]}, "has matchConditions of others"),
        ({"clientConfig": {"service": {}}}, "has no clientConfig.caBundle"),
    ],
)  # fmt: skip
def test_a_webhook_that_workers_could_pass_by_is_no_gate(changed: Raw, fault: str) -> None:
    said = gate.problem({}, {}, configuration(**changed), now=NOW)
    assert said.startswith(f"MutatingWebhookConfiguration rayspan-gate: webhook gate.rayspan.dev {fault}")
    assert said.endswith(".")


@pytest.mark.parametrize(
    "changed",
    [
        {"objectSelector": {}},
        {"objectSelector": None},
        {"objectSelector": {"matchLabels": {}, "matchExpressions": [{"key": names.PLACEMENT_LABEL, "operator": "Exists"}]}},
        {"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
        {"matchConditions": []},
    ],
)  # fmt: skip
def test_one_that_reaches_more_is_a_gate(changed: Raw) -> None:
    assert gate.problem({}, {}, configuration(**changed), now=NOW) == ""


# --- what it writes --------------------------------------------------------------------------------------------------

OURS = {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi"}}}
LOCKED = {"nodeSelector": {names.LOCK_NODE_SELECTOR: "only"}}
MINE = {"name": names.GATE}


@pytest.mark.parametrize(
    ("age", "told"),
    [
        pytest.param(timedelta(0), True, id="it came now"),
        pytest.param(gate.EFFECTIVE_AFTER / 2, True, id="a moment ago"),
        pytest.param(gate.EFFECTIVE_AFTER, False, id="it is asked by now"),
        pytest.param(timedelta(minutes=-1), False, id="in the future, by a clock that differs"),
    ],
)
@pytest.mark.parametrize("new", ["policy", "binding", "webhook"])
def test_one_that_has_just_come_may_not_be_asked_yet(new: str, age: timedelta, told: bool) -> None:
    """A worker that KubeRay made meanwhile would start in the manager cluster, and nothing would take it back."""
    came = (NOW - age).isoformat()
    found = {"policy": GATE, "binding": BINDING, "webhook": configuration()}
    kept = {kind: {} for kind in found} if new == "webhook" else {**found, "webhook": {}}
    raw = found[new]["rayspan-gate"]
    kept[new] = {"rayspan-gate": {**raw, "metadata": {**raw["metadata"], "creationTimestamp": came}}}
    said = gate.problem(kept["policy"], kept["binding"], kept["webhook"], NOW)
    assert ("was applied just now" in said) is told and bool(said) is told


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({**OURS, "spec": {}}, [MINE], id="ours"),
        pytest.param({**OURS, "spec": {"schedulingGates": None}}, [MINE], id="null is none"),
        pytest.param({**OURS, "spec": {"schedulingGates": [{"name": "a"}]}}, [{"name": "a"}, MINE], id="others stay"),
        pytest.param({**OURS, "spec": {"schedulingGates": [{"name": "a"}, MINE]}}, None, id="it has it"),
        pytest.param({"metadata": {"labels": {"a": "b"}}, "spec": {}}, None, id="somebody else's"),
        pytest.param({"metadata": None, "spec": {}}, None, id="no labels"),
        pytest.param(
            {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi", names.MANAGER_LABEL: "m"}}, "spec": {}}, None, id="a copy is to run"
        ),
        pytest.param(
            {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi", names.MANAGER_LABEL: "m"}}, "spec": LOCKED}, [MINE], id="no label dodges it"
        ),
        pytest.param({**OURS, "spec": None}, None, id="no pod"),
    ],
)  # fmt: skip
def test_what_the_webhook_writes(pod: Raw, want: list[Raw] | None) -> None:
    before = copy.deepcopy(pod)
    assert gate.required_gates(pod) == want
    assert pod == before


def test_it_does_it_once() -> None:
    pod = {**OURS, "spec": {"schedulingGates": gate.required_gates({**OURS, "spec": {}})}}
    assert gate.required_gates(pod) is None
