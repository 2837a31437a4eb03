"""The gate is in place by policy or by webhook, and the webhook writes what the policy writes."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.admission import gate
from adapter.objects.shipped_policy import EFFECTIVE_AFTER
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.shipped_policies import gate_policy
from hack.lab.base.paths import REPO

SHIPPED = gate_policy()
GATE = {"rayspan-gate": {"metadata": {"name": "rayspan-gate"}, "spec": SHIPPED.policy}}
BINDING = {"rayspan-gate": {"metadata": {"name": "rayspan-gate"}, "spec": SHIPPED.binding}}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
MANIFEST = REPO / "kustomize/components/admission-gate/webhook.yaml"


def configuration(**changed: Any) -> dict[str, Raw]:
    """The shipped configuration after its Job ran, with changed fields of its webhook."""
    (shipped,) = (one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["metadata"]["name"] == "rayspan-gate")
    raw = copy.deepcopy(shipped)
    (webhook,) = raw["webhooks"]
    webhook["clientConfig"]["caBundle"] = "LS0t"
    webhook.update(changed)
    return {"rayspan-gate": raw}


def problem(policies: Raw, bindings: Raw, webhooks: Raw, now: datetime = NOW) -> str:
    return gate.problem(policies, bindings, webhooks, SHIPPED, now)


@pytest.mark.parametrize(
    ("policies", "bindings", "fault"),
    [
        pytest.param({}, BINDING, "Policy rayspan-gate is missing", id="no policy"),
        pytest.param({}, {}, "Policy rayspan-gate is missing", id="neither exists: the policy is named first"),
        pytest.param({"other": {}}, BINDING, "Policy rayspan-gate is missing", id="a policy of another project"),
        pytest.param(GATE, {}, "PolicyBinding rayspan-gate is missing", id="no binding"),
        pytest.param(
            GATE,
            {"rayspan-gate": {"spec": {"policyName": "other"}}},
            'PolicyBinding rayspan-gate has spec.policyName "other", where "rayspan-gate" is shipped',
            id="a binding of another policy",
        ),
        pytest.param(
            GATE,
            {"rayspan-gate": {"spec": None}},
            'PolicyBinding rayspan-gate has spec nothing, where {"policyName": "rayspan-gate"} is shipped',
            id="an empty binding",
        ),
    ],
)
def test_without_the_policy_or_its_binding_there_is_no_gate(policies: Raw, bindings: Raw, fault: str) -> None:
    assert problem(policies, bindings, {}) == (
        f"MutatingAdmission{fault}, so worker pods might start in the manager cluster; apply "
        "manifests/gate-policy.yaml, or, before Kubernetes 1.36, kustomize/overlays/manager-webhook."
    )


def test_the_shipped_policy_and_binding_are_a_gate() -> None:
    assert problem(GATE, BINDING, {}) == ""


PODS_NEVER = {"excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}
TEAM_A = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("policy", "binding", "field"),
    [
        pytest.param({"failurePolicy": "Ignore"}, {}, "failurePolicy", id="a policy that ignores failures"),
        pytest.param({"reinvocationPolicy": "Never"}, {}, "reinvocationPolicy", id="a policy that is called once"),
        pytest.param({"mutations": []}, {}, "mutations", id="a policy that writes nothing"),
        pytest.param(
            {"matchConditions": [{"name": "is-no-copy", "expression": "false"}]},
            {},
            "matchConditions[0].expression",
            id="a condition of the shipped name that is never met",
        ),
        pytest.param(
            {"matchConstraints": {**SHIPPED.policy["matchConstraints"], **TEAM_A}},
            {},
            "matchConstraints.namespaceSelector",
            id="a policy for some namespaces",
        ),
        pytest.param({}, {"matchResources": TEAM_A}, "matchResources", id="a binding for some namespaces"),
        pytest.param({}, {"matchResources": PODS_NEVER}, "matchResources", id="a binding that excludes pods"),
    ],
)
def test_a_policy_that_is_not_the_shipped_one_is_no_gate(policy: Raw, binding: Raw, field: str) -> None:
    live_policy = {"rayspan-gate": {"spec": {**SHIPPED.policy, **policy}}}
    live_binding = {"rayspan-gate": {"spec": {**SHIPPED.binding, **binding}}}
    assert f"rayspan-gate has spec.{field} " in problem(live_policy, live_binding, {})
    assert problem(live_policy, live_binding, configuration()) == "", "the webhook gates them"


@pytest.mark.parametrize(
    ("policies", "bindings"),
    [({}, {}), (GATE, {}), (GATE, BINDING)],
    ids=["no policy", "no binding", "the policy as well"],
)
def test_the_webhook_is_enough(policies: Raw, bindings: Raw) -> None:
    assert problem(policies, bindings, configuration()) == ""


def test_a_broken_webhook_does_not_weaken_the_policy() -> None:
    assert problem(GATE, BINDING, configuration(failurePolicy="Ignore")) == ""


def test_a_webhook_that_denies_every_worker_is_reported_beside_the_policy() -> None:
    """The webhook came after its Job, or before it: no worker is created until the component is applied again."""
    found = configuration(clientConfig={"service": {}})
    assert problem(GATE, BINDING, found) == (
        "MutatingWebhookConfiguration rayspan-gate: webhook gate.rayspan.dev has no clientConfig.caBundle, so the API "
        "server cannot call it, and denies every worker pod, although MutatingAdmissionPolicy rayspan-gate gates them "
        "already; apply kustomize/components/admission again, after admission-gate, and see Job "
        "rayspan-admission-certificate in rayspan-system; or delete that configuration."
    )
    found["rayspan-gate"]["webhooks"][0]["rules"] = []
    assert problem(GATE, BINDING, found) == "", "it is asked of no pod"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"name": "other.rayspan.dev"}, "is not there"),
        ({"failurePolicy": "Ignore"}, "has failurePolicy Ignore, not Fail"),
        ({"rules": []}, "has no rule for the creation of pods"),
        (
            {"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]},
            "has no rule",
        ),
        (
            {
                "rules": [
                    {
                        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
                        "scope": "Cluster",
                    },
                ],
            },
            "has no rule",
        ),
        (
            {"objectSelector": {"matchLabels": {"team": "a"}}},
            "has an objectSelector that is not rayspan.dev/placement alone",
        ),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "has a namespaceSelector, which excludes namespaces"),
        (
            {"matchConditions": [{"name": "mine", "expression": "false"}]},
            "has matchConditions that are not the shipped ones",
        ),
        (
            {"matchConditions": [{"name": "is-no-copy", "expression": "false"}]},
            "has matchConditions that are not the shipped ones",
        ),
        ({"clientConfig": {"service": {}}}, "has no clientConfig.caBundle"),
    ],
)  # fmt: skip
def test_a_webhook_that_workers_could_pass_by_is_no_gate(changed: Raw, fault: str) -> None:
    said = problem({}, {}, configuration(**changed))
    assert said.startswith(f"MutatingWebhookConfiguration rayspan-gate: webhook gate.rayspan.dev {fault}")
    assert said.endswith(".")


@pytest.mark.parametrize(
    "changed",
    [
        {"objectSelector": {}},
        {"objectSelector": None},
        {
            "objectSelector": {
                "matchLabels": {}, "matchExpressions": [{"key": names.PLACEMENT_LABEL, "operator": "Exists"}],
            },
        },
        {"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
        {"matchConditions": []},
    ],
)  # fmt: skip
def test_a_webhook_that_covers_more_is_a_gate(changed: Raw) -> None:
    assert problem({}, {}, configuration(**changed)) == ""


# --- what it writes --------------------------------------------------------------------------------------------------

OURS = {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi"}}}
LOCKED = {"nodeSelector": {names.LOCK_NODE_SELECTOR: "only"}}
MINE = {"name": names.GATE}


@pytest.mark.parametrize(
    ("age", "told"),
    [
        pytest.param(timedelta(0), True, id="the gate was created now"),
        pytest.param(EFFECTIVE_AFTER / 2, True, id="the gate was created a moment ago"),
        pytest.param(EFFECTIVE_AFTER, False, id="the gate is old enough to be in effect"),
        pytest.param(timedelta(minutes=-1), False, id="the gate was created in the future of this clock"),
    ],
)
@pytest.mark.parametrize("new", ["policy", "binding", "webhook"])
@pytest.mark.parametrize("how", ["created", "changed"])
def test_a_new_gate_may_not_be_in_effect_yet(new: str, age: timedelta, told: bool, how: str) -> None:
    """A worker that KubeRay creates meanwhile would start in the manager cluster and stay there."""
    time = (NOW - age).isoformat()
    changed = {"managedFields": [{"manager": "kubectl", "time": time}]}
    came = {"creationTimestamp": time} if how == "created" else changed
    found = {"policy": GATE, "binding": BINDING, "webhook": configuration()}
    kept = {kind: {} for kind in found} if new == "webhook" else {**found, "webhook": {}}
    raw = found[new]["rayspan-gate"]
    kept[new] = {"rayspan-gate": {**raw, "metadata": {**raw["metadata"], **came}}}
    said = problem(kept["policy"], kept["binding"], kept["webhook"], NOW)
    assert ("was applied or changed just now" in said) is told and bool(said) is told


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({**OURS, "spec": {}}, [MINE], id="our worker"),
        pytest.param({**OURS, "spec": {"schedulingGates": None}}, [MINE], id="null gates count as none"),
        pytest.param(
            {**OURS, "spec": {"schedulingGates": [{"name": "a"}]}}, [{"name": "a"}, MINE], id="gates of others stay",
        ),
        pytest.param(
            {**OURS, "spec": {"schedulingGates": [{"name": "a"}, MINE]}}, None, id="the pod has the gate already",
        ),
        pytest.param({"metadata": {"labels": {"a": "b"}}, "spec": {}}, None, id="a pod of another owner"),
        pytest.param({"metadata": None, "spec": {}}, None, id="no labels"),
        pytest.param(
            {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi", names.MANAGER_LABEL: "m"}}, "spec": {}}, None,
            id="a remote pod is not gated"
        ),
        pytest.param(
            {"metadata": {"labels": {names.PLACEMENT_LABEL: "pi", names.MANAGER_LABEL: "m"}}, "spec": LOCKED}, [MINE],
            id="remote labels without the lock do not avoid the gate"
        ),
        pytest.param({**OURS, "spec": None}, None, id="not a pod"),
    ],
)  # fmt: skip
def test_the_gates_that_the_webhook_writes(pod: Raw, want: list[Raw] | None) -> None:
    before = copy.deepcopy(pod)
    assert gate.required_gates(pod) == want
    assert pod == before


def test_the_webhook_is_idempotent() -> None:
    pod = {**OURS, "spec": {"schedulingGates": gate.required_gates({**OURS, "spec": {}})}}
    assert gate.required_gates(pod) is None
