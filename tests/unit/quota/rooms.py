"""What one podset is told of a ClusterQueue, by the steps that plans take: for tests that look at nothing but the arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.objects.pod_requests import Resources
from adapter.objects.selectors import Labels
from adapter.objects.unstructured import Raw
from adapter.quota.tree import Shortfall, Tree, ask, line, reserve, settle, survey


@dataclass(frozen=True, slots=True)
class Room:
    """How many pods fit, in which flavors, and why no more."""

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0
    ever: int = 0
    tight: Shortfall | None = None
    reason: str = ""


def admits(
    tree: Tree, queue: str, request: Resources, pod_spec: Raw, *, wanted: int = 1, namespace: Labels | None = None
) -> Room:
    """How many more such pods the ClusterQueue admits now as one podset."""
    found = survey(ask(tree, queue, request, pod_spec, namespace), line(tree, queue))
    fit = found.fit(wanted)
    return Room(fit.flavors, fit.nominal, fit.borrow, found.ever(), found.tight(wanted), found.reason(wanted))


def charge(tree: Tree, queue: str, flavors: Mapping[str, str], request: Resources, count: int) -> Tree:
    """The tree with so many such pods reserved in these flavors."""
    return settle(tree, queue, reserve(line(tree, queue), flavors, request, count))
