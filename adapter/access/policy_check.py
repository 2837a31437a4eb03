"""Was it judged who may have a grant, when it was made: does the policy stand whose verdict it is, whole, and did it stand then?

Whoever may view a namespace creates grants; the policy alone refuses those for what he may not do. One that was made while the policy was
away, was narrowed or only warned is good for nothing, also once it denies again.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from adapter import names
from adapter.access.route import ErrorStatus
from adapter.objects.unstructured import Raw, format_time, meta, parse_time

# An API server looks for changed policies once a second (k8s:apiserver/pkg/admission/plugin/policy/generic/policy_source.go), after its
# watch has told it of one; times are in whole seconds, and two API servers' clocks may differ by one or two.
EFFECTIVE_AFTER: Final = timedelta(seconds=5)
_POLICY: Final = f"ValidatingAdmissionPolicy {names.ACCESS_POLICY}"


def problem(policy: Raw | None, binding: Raw | None, created: datetime) -> ErrorStatus | None:
    """Why a grant that was made then counts as not judged; None if it was. Each is the object of our name, None where there is none."""
    fault = _policy_fault(policy, binding)
    if fault or policy is None or binding is None:
        return ErrorStatus(
            503,
            "ServiceUnavailable",
            f"{_POLICY} {fault}, so nobody has judged who may have a WorkerAccess: an administrator of the manager applies "
            "kustomize/components/worker-access again.",
        )
    changed = max((*_change_times(policy), *_change_times(binding)), default=created)
    if created >= changed + EFFECTIVE_AFTER:
        return None
    return ErrorStatus(
        403,
        "Forbidden",
        f"This WorkerAccess was made before {_POLICY} and its binding were last changed, at {format_time(changed)}, or less than "
        f"{EFFECTIVE_AFTER.seconds} seconds after it, so they may not have judged it: run `kubectl rayspan` again.",
    )


def _policy_fault(policy: Raw | None, binding: Raw | None) -> str:
    """What is wrong with the policy, a part of a sentence; empty when nothing is. The API server has filled in defaults."""
    if policy is None:
        return "is missing"
    judges = policy.get("spec") or {}
    if judges.get("failurePolicy") != "Fail":
        return f"has failurePolicy {judges.get('failurePolicy')}, not Fail"
    if judges.get("matchConditions"):
        return "has matchConditions"
    if _is_narrowed(judges.get("matchConstraints") or {}, ()):
        return "has matchConstraints that leave some out"
    return "has no binding of its name" if binding is None else _binding_fault(binding.get("spec") or {})


def _binding_fault(bound: Raw) -> str:
    if bound.get("policyName") != names.ACCESS_POLICY:
        return "is not what its binding names"
    if "Deny" not in (bound.get("validationActions") or ()):
        return "does not deny"
    if _is_narrowed(bound.get("matchResources") or {}, ("resourceRules",)):
        return "is narrowed by spec.matchResources of its binding"
    return ""


def _is_narrowed(match: dict[str, Any], extra_fields: tuple[str, ...]) -> bool:
    selectors = (match.get(field) or {} for field in ("namespaceSelector", "objectSelector"))
    return any(any(one.values()) for one in selectors) or any(
        match.get(field) for field in ("excludeResourceRules", *extra_fields)
    )


def _change_times(raw: Raw) -> Iterator[datetime]:
    """When an object was made, and when somebody wrote to it; what is noted in its status is the API server's."""
    noted = (one for one in meta(raw).get("managedFields") or () if not one.get("subresource"))
    times = (parse_time(text) for text in (meta(raw).get("creationTimestamp"), *(one.get("time") for one in noted)))
    return (when for when in times if when is not None)
