"""Typed records of AdmissionChecks, the checks that a Workload gets, and the worker groups that a check covers.

admission/policy.py reads the policy of a check, and admission/queue_layout.py validates the layout of its queues.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from adapter import names
from adapter.objects.queues import ClusterQueue
from adapter.objects.rayjob import JobObject, worker_podsets
from adapter.objects.unstructured import Raw, condition, key_of, mapping_field, text_field
from adapter.objects.workload import PodSet, Workload


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An AdmissionCheck; one that does not exist has no controller."""

    name: str
    controller: str = ""  # spec.controllerName
    policy: str = ""  # the DispatchPolicy in spec.parameters; empty without one
    active: bool = False  # its condition Active, with reason and message
    reason: str = ""
    message: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether our controller sets its state."""
        return self.controller == names.CONTROLLER_NAME


def read_check(raw: Raw) -> AdmissionCheck:
    """Read an AdmissionCheck; never raises."""
    spec, active = mapping_field(raw, "spec"), condition(raw, names.ACTIVE)
    return AdmissionCheck(
        name=key_of(raw)[1],
        controller=text_field(spec, "controllerName"),
        policy=_policy(mapping_field(spec, "parameters")),
        active=active.get("status") == "True",
        reason=text_field(active, "reason"),
        message=text_field(active, "message"),
    )


def _policy(parameters: Raw) -> str:
    kind = text_field(parameters, "apiGroup"), text_field(parameters, "kind")
    return text_field(parameters, "name") if kind == (names.DOMAIN, names.DISPATCH_POLICY_KIND) else ""


def our_checks(checks: Iterable[AdmissionCheck]) -> frozenset[str]:
    """The names of our checks."""
    return frozenset(check.name for check in checks if check.is_ours)


def expected_checks(workload: Workload, queue: ClusterQueue) -> list[str]:
    """The checks on a Workload, then those of its ClusterQueue that Kueue is about to add.

    A check on some flavors appears a moment after the quota reservation, when a check on all flavors is already there
    (docs/upstream.md, "What a check covers"). No field says that the list is complete.
    """
    flavors = frozenset[str]().union(*(podset.flavors for podset in workload.podsets))
    further = (name for name, on_flavors in queue.checks.items() if not on_flavors or flavors.intersection(on_flavors))
    return list(dict.fromkeys((*workload.checks, *further)))


def covered_groups(workload: Workload, check: str, queue: ClusterQueue, job: JobObject) -> list[PodSet]:
    """The worker groups that a check of the Workload's ClusterQueue covers: all, or those with one of its flavors.

    Kueue requires the check as soon as one podset has such a flavor (docs/upstream.md, "What a check covers"). A group
    without workers is covered, too: its template needs the gate before scale-up.
    """
    flavors = set(queue.checks.get(check, ()))
    return [group for group in worker_podsets(workload, job) if not flavors or group.flavors & flavors]
