"""Which AdmissionChecks does a ClusterQueue list, for which of its flavors, and which of them are ours to answer?

What our own parameters of a check say is read in admission/policy.py, and what is wrong with a layout in admission/queue_layout.py.
"""

from collections.abc import Iterable

from adapter import names
from adapter.objects import rayjob
from adapter.objects.unstructured import Raw, key_of
from adapter.objects.workload import PodSet, Workload


def listed(queue: Raw) -> dict[str, tuple[str, ...]]:
    """The checks of a ClusterQueue in its order, each with its onFlavors; none of these: it is on every flavor.

    Source: kueue:apis/kueue/v1beta2/clusterqueue_types.go, AdmissionChecksStrategy; a name stands there once.
    """
    strategy = (queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    entries = strategy.get("admissionChecks") or ()
    return {entry.get("name") or "": tuple(entry.get("onFlavors") or ()) for entry in entries}


def controller(check: Raw) -> str:
    """Who answers a check, empty where nobody is named."""
    return str((check.get("spec") or {}).get("controllerName") or "")


def is_ours(check: Raw) -> bool:
    """Whether we answer it."""
    return controller(check) == names.CONTROLLER_NAME


def ours(checks: Iterable[Raw]) -> frozenset[str]:
    """The names of those that we answer."""
    return frozenset(key_of(check)[1] for check in checks if is_ours(check))


def asked(work: Workload, queue: Raw) -> list[str]:
    """The checks of a Workload: those that stand on it, then those of its ClusterQueue that Kueue is about to put there.

    One that is limited to some flavors appears a moment after the reservation, when one on all of them stands there already
    (docs/upstream.md, "What a check covers"): nothing announces that the list is whole.
    """
    flavors = frozenset[str]().union(*(podset.flavors for podset in work.podsets))
    coming = (name for name, on in listed(queue).items() if not on or flavors.intersection(on))
    return list(dict.fromkeys((*work.checks, *coming)))


def covered(work: Workload, check: str, queue: Raw, job: Raw) -> list[PodSet]:
    """The worker groups that a check of the Workload's ClusterQueue covers: all, or those with one of its flavors.

    Kueue asks the check of a Workload as soon as one of its podsets has such a flavor, and leaves it to the check which ones it
    answers for (docs/upstream.md, "What a check covers"). Head and submitter stay in the manager; which they are, `job` tells
    (`rayjob.worker_groups`). A group of nobody is among them: its template needs the gate as soon as somebody scales it.
    """
    flavors = set(listed(queue).get(check, ()))
    return [p for p in rayjob.worker_groups(work, job) if not flavors or p.flavors & flavors]
