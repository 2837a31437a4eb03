"""A grant counts only if the policy was in force, unmodified, when the grant was created."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from adapter.access import policy_check
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.shipped_policies import access_policy
from hack.lab.base.paths import REPO

SINCE = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
SHIPPED = REPO / "kustomize/components/worker-access/policy.yaml"
SHIPPED_SPEC = access_policy().policy


def at(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def standing(which: str, changed: Raw | None = None, **about: Any) -> Raw:
    """The shipped policy or its binding with changed fields of its spec."""
    (shipped,) = (one for one in yaml.safe_load_all(SHIPPED.read_text()) if one["kind"].endswith(which))
    raw: Raw = copy.deepcopy(shipped)
    raw["metadata"] |= {"creationTimestamp": at(SINCE - timedelta(days=1)), **about}
    raw["spec"] |= changed or {}
    return raw


def found(policy: Raw | None, binding: Raw | None, age: timedelta = timedelta(seconds=5)) -> str:
    refusal = policy_check.problem(policy, binding, access_policy(), SINCE + age)
    return refusal.message if refusal else ""


def test_the_shipped_policy_judges() -> None:
    assert found(standing("Policy"), standing("Binding")) == ""


@pytest.mark.parametrize(
    ("policy", "binding"),
    [
        pytest.param(
            {"matchConditions": [], "auditAnnotations": [], "paramKind": None}, {}, id="empty fields are absent fields"
        ),
        pytest.param({}, {"matchResources": {"namespaceSelector": {}}}, id="an empty selector selects everything"),
        pytest.param({}, {"validationActions": ["Audit", "Deny"]}, id="a note in the audit log beside the denial"),
        pytest.param({"validations": [
            {**validation, "message": "Nein", "messageExpression": "'nein'", "reason": "Invalid"}
            for validation in SHIPPED_SPEC["validations"]
        ]}, {}, id="other texts for people"),
    ],
)  # fmt: skip
def test_a_policy_that_judges_as_the_shipped_one_counts(policy: Raw, binding: Raw) -> None:
    assert found(standing("Policy", policy), standing("Binding", binding)) == ""


CONSTRAINTS = SHIPPED_SPEC["matchConstraints"]
(RULE,) = CONSTRAINTS["resourceRules"]


def with_rule(**changed: Any) -> Raw:
    return {"matchConstraints": {**CONSTRAINTS, "resourceRules": [{**RULE, **changed}]}}


BINDING_FAULT = "is not in force as shipped: its binding has spec."


@pytest.mark.parametrize(
    ("policy", "binding", "said"),
    [
        pytest.param(None, {}, "is missing", id="no policy"),
        pytest.param({}, None, "has no binding of the same name", id="no binding"),
        pytest.param(
            {}, {"policyName": "a"}, f'{BINDING_FAULT}policyName "a", where "rayspan-access" is shipped',
            id="a binding of another policy",
        ),
        pytest.param(
            {}, {"validationActions": ["Warn"]},
            f'{BINDING_FAULT}validationActions ["Warn"], where ["Deny"] is shipped',
            id="a binding that only warns",
        ),
        pytest.param(
            {}, {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
            f'{BINDING_FAULT}matchResources {{"namespaceSelector": {{"matchLabels": {{"a": "b"}}}}}}, where nothing is '
            "shipped",
            id="a binding for some namespaces",
        ),
        pytest.param(
            {}, {"matchResources": {"resourceRules": [{"operations": ["UPDATE"]}]}},
            f'{BINDING_FAULT}matchResources {{"resourceRules": [{{"operations": ["UPDATE"]}}]}}, where nothing is '
            "shipped",
            id="a binding for some requests",
        ),
        pytest.param(
            {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
            {"paramRef": {"parameterNotFoundAction": "Allow"}},
            'has spec.paramKind {"apiVersion": "v1", "kind": "ConfigMap"}, where nothing is shipped',
            id="parameters that are not there",
        ),
        pytest.param(
            {"failurePolicy": "Ignore"}, {}, 'has spec.failurePolicy "Ignore", where "Fail" is shipped',
            id="a policy that ignores failures",
        ),
        pytest.param(
            {"matchConditions": [{"name": "a", "expression": "false"}]}, {},
            'has spec.matchConditions [{"name": "a", "expression": "false"}], where nothing is shipped',
            id="a policy with match conditions",
        ),
        pytest.param(
            {"matchConstraints": {**CONSTRAINTS, "excludeResourceRules": [{"operations": ["CREATE"]}]}}, {},
            'has spec.matchConstraints.excludeResourceRules [{"operations": ["CREATE"]}], where nothing is shipped',
            id="a policy with excluded resources",
        ),
        pytest.param(
            {"validations": [{"expression": "true"}]}, {},
            "has spec.validations[0].expression \"true\", where \"request.operation == 'CREATE' || (object.spec == "
            "oldObject.… is shipped",
            id="a policy that judges nothing",
        ),
        pytest.param(
            {"validations": SHIPPED_SPEC["validations"][:2]}, {},
            "has spec.validations[2] nothing, where {\"expression\": \"request.operation != 'CREATE' || "
            "(object.met… is shipped",
            id="a policy without one of its validations",
        ),
        pytest.param(
            {"variables": [{"name": "verb", "expression": "'get'"}]}, {},
            "has spec.variables[0].expression \"'get'\", where \"object.spec.subresource == 'log' ? 'get' : 'create'\" "
            "is shipped",
            id="a policy that asks for a lesser right",
        ),
        pytest.param(
            with_rule(operations=["UPDATE"]), {},
            'has spec.matchConstraints.resourceRules[0].operations ["UPDATE"], where ["CREATE", "UPDATE"] is shipped',
            id="a policy for changes alone",
        ),
        pytest.param(
            with_rule(resourceNames=["x"]), {},
            'has spec.matchConstraints.resourceRules[0].resourceNames ["x"], where nothing is shipped',
            id="a policy for one name",
        ),
        pytest.param(
            with_rule(apiGroups=["example.com"]), {},
            'has spec.matchConstraints.resourceRules[0].apiGroups ["example.com"], where ["rayspan.dev"] is shipped',
            id="a policy for another API group",
        ),
        pytest.param(
            with_rule(scope="Cluster"), {},
            'has spec.matchConstraints.resourceRules[0].scope "Cluster", where "Namespaced" is shipped',
            id="a policy for objects without a namespace",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_is_not_the_shipped_one_does_not_count(
    policy: Raw | None, binding: Raw | None, said: str
) -> None:
    live_policy = None if policy is None else standing("Policy", policy)
    live_binding = None if binding is None else standing("Binding", binding)
    assert found(live_policy, live_binding) == (
        f"ValidatingAdmissionPolicy rayspan-access {said}, so nothing has checked who may have a WorkerAccess: ask an "
        "administrator of the manager to apply kustomize/components/worker-access again."
    )


@pytest.mark.parametrize("which", ["Policy", "Binding"])
@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"creationTimestamp": at(SINCE)}, id="created later"),
        pytest.param(
            {
                "managedFields": [
                    {"manager": "kubectl", "time": at(SINCE)}, {"manager": "helm", "time": "2020-01-01T00:00:00Z"},
                ],
            },
            id="changed later"
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("age", "judged"), [(timedelta(seconds=-60), False), (timedelta(seconds=4), False), (timedelta(seconds=5), True)]
)
def test_a_grant_from_before_the_last_change_of_the_policy_does_not_count(
    which: str, about: Raw, age: timedelta, judged: bool
) -> None:
    """Neither does one from the seconds in which an API server may not have observed the change."""
    objects = {one: standing(one, **(about if one == which else {})) for one in ("Policy", "Binding")}
    said = found(objects["Policy"], objects["Binding"], age)
    assert (said == "") is judged
    assert judged or said == (
        "This WorkerAccess was created before ValidatingAdmissionPolicy rayspan-access and its binding were last "
        "changed, at 2026-11-25T12:00:00Z, or less than 5 seconds after that, so they may not have checked it: run "
        "`kubectl rayspan` again."
    )


def test_the_api_servers_own_status_is_no_change_of_the_policy() -> None:
    noted = [{"manager": "kube-controller-manager", "subresource": "status", "time": at(SINCE)}]
    assert found(standing("Policy", managedFields=noted), standing("Binding"), timedelta()) == ""
