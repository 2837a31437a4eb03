"""Was a grant judged when it was made: does the policy stand as it is shipped, and did it before?"""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from adapter.access import policy_check
from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.paths import REPO

SINCE = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
SHIPPED = REPO / "kustomize/components/worker-access/policy.yaml"


def at(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def standing(which: str, changed: Raw | None = None, **about: Any) -> Raw:
    """The shipped policy or its binding, as the API server shows it, with some fields of its spec changed."""
    (shipped,) = (one for one in yaml.safe_load_all(SHIPPED.read_text()) if one["kind"].endswith(which))
    raw: Raw = copy.deepcopy(shipped)
    raw["metadata"] |= {"creationTimestamp": at(SINCE - timedelta(days=1)), **about}
    raw["spec"] |= changed or {}
    return raw


def found(policy: Raw | None, binding: Raw | None, age: timedelta = timedelta(seconds=5)) -> str:
    refusal = policy_check.problem(policy, binding, SINCE + age)
    return refusal.message if refusal else ""


def test_what_is_shipped_judges() -> None:
    assert found(standing("Policy"), standing("Binding")) == ""
    filled = {"matchConstraints": {**standing("Policy")["spec"]["matchConstraints"]}, "matchConditions": []}
    assert found(standing("Policy", filled), standing("Binding", {"matchResources": {"namespaceSelector": {}}})) == ""


@pytest.mark.parametrize(
    ("policy", "binding", "said"),
    [
        pytest.param(None, standing("Binding"), "is missing", id="no policy"),
        pytest.param(standing("Policy"), None, "has no binding of its name", id="no binding"),
        pytest.param(standing("Policy"), standing("Binding", {"policyName": "a"}), "is not what its binding names", id="another policy"),
        pytest.param(standing("Policy"), standing("Binding", {"validationActions": ["Warn"]}), "does not deny", id="only warns"),
        pytest.param(standing("Policy"), {"metadata": {}, "spec": None}, "is not what its binding names", id="an empty binding"),
        pytest.param(
            standing("Policy"), standing("Binding", {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
            "is narrowed by spec.matchResources of its binding", id="a binding for some namespaces",
        ),
        pytest.param(
            standing("Policy"), standing("Binding", {"matchResources": {"resourceRules": [{"operations": ["UPDATE"]}]}}),
            "is narrowed by spec.matchResources of its binding", id="a binding for some requests",
        ),
        pytest.param(standing("Policy", {"failurePolicy": "Ignore"}), standing("Binding"), "has failurePolicy Ignore, not Fail", id="ignored"),
        pytest.param(
            standing("Policy", {"matchConditions": [{"name": "a", "expression": "false"}]}), standing("Binding"),
            "has matchConditions", id="conditions",
        ),
        pytest.param(
            standing("Policy", {"matchConstraints": {"excludeResourceRules": [{}]}}), standing("Binding"),
            "has matchConstraints that leave some out", id="left out",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_lets_some_pass_is_none(policy: Raw | None, binding: Raw | None, said: str) -> None:
    assert found(policy, binding) == (
        f"ValidatingAdmissionPolicy rayspan-access {said}, so nobody has judged who may have a WorkerAccess: an administrator of the manager "
        "applies kustomize/components/worker-access again."
    )


@pytest.mark.parametrize("which", ["Policy", "Binding"])
@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"creationTimestamp": at(SINCE)}, id="made anew"),
        pytest.param(
            {"managedFields": [{"manager": "kubectl", "time": at(SINCE)}, {"manager": "helm", "time": "2020-01-01T00:00:00Z"}]}, id="changed"
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("age", "judged"), [(timedelta(seconds=-60), False), (timedelta(seconds=4), False), (timedelta(seconds=5), True)]
)
def test_a_grant_from_before_the_policy_stood_so_was_not_judged_by_it(
    which: str, about: Raw, age: timedelta, judged: bool
) -> None:
    """Nor one from within the seconds in which an API server may not have seen the change."""
    objects = {one: standing(one, **(about if one == which else {})) for one in ("Policy", "Binding")}
    said = found(objects["Policy"], objects["Binding"], age)
    assert (said == "") is judged
    assert judged or said == (
        "This WorkerAccess was made before ValidatingAdmissionPolicy rayspan-access and its binding were last changed, at 2026-11-25T12:00:00Z, or "
        "less than 5 seconds after it, so they may not have judged it: run `kubectl rayspan` again."
    )


def test_what_the_api_server_notes_of_a_policy_itself_is_no_change() -> None:
    noted = [{"manager": "kube-controller-manager", "subresource": "status", "time": at(SINCE)}]
    assert found(standing("Policy", managedFields=noted), standing("Binding"), timedelta()) == ""
