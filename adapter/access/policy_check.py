"""Checks that the ValidatingAdmissionPolicy was in force, unmodified, when the WorkerAccess was created.

Users who may view a namespace can create grants; the policy alone denies those that exceed a user's rights. A grant
that was created while the policy was missing, narrowed or only warned is never valid, even once the policy denies
again.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from adapter import names
from adapter.access.route import ErrorStatus
from adapter.objects.unstructured import Raw, format_time, meta, parse_time

# An API server applies changed policies once a second
# (k8s:apiserver/pkg/admission/plugin/policy/generic/policy_source.go), after its watch has delivered them. Times are in
# whole seconds, and two API servers' clocks may differ by one or two.
EFFECTIVE_AFTER: Final = timedelta(seconds=5)
_POLICY: Final = f"ValidatingAdmissionPolicy {names.ACCESS_POLICY}"


def problem(policy: Raw | None, binding: Raw | None, created: datetime) -> ErrorStatus | None:
    """Why a grant of that creation time counts as not judged; None if it was judged.

    `policy` and `binding` are the objects of our name, None where they do not exist.
    """
    fault = _policy_fault(policy, binding)
    if fault or policy is None or binding is None:
        return ErrorStatus(
            503,
            "ServiceUnavailable",
            f"{_POLICY} {fault}, so nobody has judged who may have a WorkerAccess: an administrator of the manager "
            "applies kustomize/components/worker-access again.",
        )
    changed = max((*_change_times(policy), *_change_times(binding)), default=created)
    if created >= changed + EFFECTIVE_AFTER:
        return None
    return ErrorStatus(
        403,
        "Forbidden",
        f"This WorkerAccess was made before {_POLICY} and its binding were last changed, at {format_time(changed)}, "
        f"or less than {EFFECTIVE_AFTER.seconds} seconds after it, so they may not have judged it: "
        "run `kubectl rayspan` again.",
    )


def _policy_fault(policy: Raw | None, binding: Raw | None) -> str:
    """The fault of the policy as a part of a sentence, or empty. The API server has filled in defaults."""
    if policy is None:
        return "is missing"
    spec = policy.get("spec") or {}
    if spec.get("failurePolicy") != "Fail":
        return f"has failurePolicy {spec.get('failurePolicy')}, not Fail"
    if spec.get("matchConditions"):
        return "has matchConditions"
    if _is_narrowed(spec.get("matchConstraints") or {}, ()):
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
    return any(any(selector.values()) for selector in selectors) or any(
        match.get(field) for field in ("excludeResourceRules", *extra_fields)
    )


def _change_times(raw: Raw) -> Iterator[datetime]:
    """The times of an object's creation and writes; writes to its status are the API server's and do not count."""
    entries = (entry for entry in meta(raw).get("managedFields") or () if not entry.get("subresource"))
    times = (
        parse_time(text) for text in (meta(raw).get("creationTimestamp"), *(entry.get("time") for entry in entries))
    )
    return (time for time in times if time is not None)
