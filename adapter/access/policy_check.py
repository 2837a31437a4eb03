"""Checks that the ValidatingAdmissionPolicy was in force, unmodified, when the WorkerAccess was created.

Users who may view a namespace can create grants; the policy alone denies those that exceed a user's rights. A grant
that was created while the policy was missing, was narrowed or did no more than warn is never valid, even once the
policy denies again.
"""

from datetime import datetime
from typing import Final

from adapter import names
from adapter.access.route import ErrorStatus
from adapter.objects.shipped_policy import EFFECTIVE_AFTER, ShippedPolicy, change_times, find_difference
from adapter.objects.unstructured import Raw, format_time

_POLICY: Final = f"ValidatingAdmissionPolicy {names.ACCESS_POLICY}"


def problem(policy: Raw | None, binding: Raw | None, shipped: ShippedPolicy, created: datetime) -> ErrorStatus | None:
    """Why the policy may not have checked a grant created at `created`; None if it has.

    `policy` and `binding` are the objects of our name, None where they do not exist.
    """
    fault = _policy_fault(policy, binding, shipped)
    if fault or policy is None or binding is None:
        return ErrorStatus(
            503,
            "ServiceUnavailable",
            f"{_POLICY} {fault}, so nothing has checked who may have a WorkerAccess: ask an administrator of the "
            "manager to apply kustomize/components/worker-access again.",
        )
    changed = max((*change_times(policy), *change_times(binding)), default=created)
    if created >= changed + EFFECTIVE_AFTER:
        return None
    return ErrorStatus(
        403,
        "Forbidden",
        f"This WorkerAccess was created before {_POLICY} and its binding were last changed, at {format_time(changed)}, "
        f"or less than {EFFECTIVE_AFTER.seconds} seconds after that, so they may not have checked it: run `kubectl "
        "rayspan` again.",
    )


def _policy_fault(policy: Raw | None, binding: Raw | None, shipped: ShippedPolicy) -> str:
    """The fault of the policy as a part of a sentence, or empty."""
    if policy is None:
        return "is missing"
    if binding is None:
        return "has no binding of the same name"
    if fault := find_difference(policy, shipped.policy):
        return fault
    fault = find_difference(binding, shipped.binding)
    return f"is not in force as shipped: its binding {fault}" if fault else ""
