"""Compares Kueue's answer to a Workload with our forecast. Pure: answers and forecasts in, sentences out.

Kueue's sentence also tells whether a rejected Workload would not fit an empty tree. Flavor by flavor, its scheduler
says "> maximum capacity" of what no tree could hold and "insufficient unused quota" of what it could
(flavorassigner.go, fitsResourceQuota). That is readable for one podset and one resource group only. For several groups
Kueue reports the result; where one of them has capacity it retries from the next flavor and no longer names the others.
"""

import re
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.quota.cohort import Amounts
from adapter.quota.tree import QuotaTree
from hack.oracle.predict import Counts, Flavors, Forecast
from hack.testbed.clusters import condition

# What Kueue says of a Workload that lost a race within one scheduling cycle; it retries at once (scheduler.go,
# processEntry).
_FLEETING: Final = "no longer fits after processing another workload"
_OVER: Final = re.compile(r"insufficient quota for \S+ in flavor (\S+), previously considered [^>]*> maximum capacity")
_SHORT: Final = re.compile(r"insufficient unused quota for \S+ in flavor (\S+),")
_BARRED: Final = re.compile(r"untolerated taint .*? in flavor (\S+?)(?:,|$)|flavor (\S+) doesn't match node affinity")


@dataclass(frozen=True, slots=True)
class Answer:
    """Kueue's answer to a Workload."""

    reserved: bool
    flavors: Flavors
    message: str


def read(workload: Raw) -> Answer | None:
    """Kueue's answer, None while it has given none that lasts."""
    found = condition(workload, names.QUOTA_RESERVED)
    said = found.get("message") or ""
    if not found or _FLEETING in said:
        return None
    given = (workload["status"].get("admission") or {}).get("podSetAssignments") or ()
    return Answer(found["status"] == "True", tuple(one.get("flavors") or {} for one in given), said)


def disagreement(ours: Forecast, *, asked: Counts, answer: Answer | None) -> str:
    """Say in a sentence how Kueue's answer to Workloads of `asked` pods differs from ours; empty if it does not."""
    if answer is None:
        return f"Kueue said nothing about {_text(asked)}"
    if answer.reserved != (asked != ours.more):
        said = "admitted" if answer.reserved else f"did not admit ({answer.message})"
        return f"Kueue {said} {_text(asked)}, we expected {_expected(ours)}"
    if answer.reserved and answer.flavors != ours.flavors:
        return f"Kueue gave {_text(asked)} the flavors {_plain(answer.flavors)}, we expected {_plain(ours.flavors)}"
    forever = says_never(answer.message) if ours.told and not answer.reserved else None
    if forever not in (None, asked[0] > ours.ever):
        return (
            f"for {_text(asked)} there is {'never' if forever else 'one day'} room ({answer.message}), "
            f"but ever is {ours.ever}"
        )
    return ""


def uncounted(before: QuotaTree, after: QuotaTree, tree: str) -> str:
    """Say where in the tree of that name the use that Kueue shows is not the one that we charged; empty if nowhere."""
    for key in before.forest.observed_usage:
        charged, shown = before.forest.usage(key), after.forest.usage(key) if key in after.forest.observed_usage else {}
        if key[1].startswith(f"{tree}-") and _used(charged) != _used(shown):
            return f"Kueue counts {_used(shown)} at {' '.join(key)}, we charged {_used(charged)}"
    return ""


def lasting(ours: Forecast) -> str:
    """Say what is wrong with `ever` in a tree where nothing is in use; empty if nothing is, or if there are several
    podsets.
    """
    alone = len(ours.fits or ours.more or ()) == 1  # of two, the first is in use already when the second is assigned
    return f"{ours.most} fit in an empty tree, but ever is {ours.ever}" if alone and ours.ever != ours.most else ""


def _used(amounts: Amounts) -> dict[str, int]:
    return {" ".join(cell): amount for cell, amount in amounts.items() if amount}


def _expected(ours: Forecast) -> str:
    fits = f"room for {_text(ours.fits)}" if ours.fits else "no room"
    return f"{fits} and none for {_text(ours.more)}" + (f" ({ours.reason})" if ours.reason else "")


def _text(counts: Counts | None) -> str:
    return "more" if counts is None else f"{' + '.join(map(str, counts))} pods"


def _plain(flavors: Flavors) -> str:
    return " + ".join(str(dict(sorted(one.items()))) for one in flavors)


def says_never(message: str) -> bool | None:
    """Whether a sentence of Kueue means "never": no flavor is only short. None where it names no quota or flavors."""
    over, short = set(_OVER.findall(message)), set(_SHORT.findall(message))
    barred = {flavor for found in _BARRED.findall(message) for flavor in found if flavor}
    return not short - over - barred if over | short | barred else None
