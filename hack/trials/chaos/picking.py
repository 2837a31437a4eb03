"""Picks the target of a fault among the present ones, in the order of their gangs and slots. Pure.

That order is the same in every run. The load is filled first.
"""

from collections.abc import Callable, Sequence

from adapter import names
from adapter.objects.unstructured import label, meta
from adapter.objects.worker_pod import slot_of
from hack.testbed.reader import Raw
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Load

NOBODY = "nobody"  # the target of a fault that finds none


def one(load: Load, fault: Fault, fits: Callable[[str], bool] = lambda _: True) -> str:
    """One of the gangs that fit a fault, which come oldest first; empty when none does."""
    load.fill()
    known = [name for name in load.wanted if fits(name)]
    return known[fault.pick % len(known)] if known else ""


def picked(objects: Sequence[Raw], fault: Fault) -> Raw:
    """One of these objects, {} when there is none."""
    return next(iter(turned(objects, fault)), {})


def turned(objects: Sequence[Raw], fault: Fault) -> list[Raw]:
    """All of them, from the one that a fault hits on."""
    ordered = sorted(objects, key=_order)
    first = fault.pick % len(ordered) if ordered else 0
    return [*ordered[first:], *ordered[:first]]


def _order(raw: Raw) -> tuple[str, str, str]:
    """By gang, then slot; names have parts that differ in every run."""
    gang = label(raw, names.RAY_GCS_CLUSTER_LABEL) or label(raw, names.REMOTE_RAY_CLUSTER_LABEL)
    return gang or label(raw, names.PLACEMENT_LABEL), str(slot_of(raw) or ""), meta(raw)["name"]
