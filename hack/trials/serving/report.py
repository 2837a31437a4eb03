"""Reports the seconds of load in each stage, and the missed bounds. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hack.testbed import figures
from hack.testbed.figures import Value
from hack.trials.serving.load import Second

# Seconds after a cut in which requests may go to unreachable addresses: an unreachable cluster is noticed within 15,
# its proxies count as unreachable within seven, and the rest is for the slice to be written and for kube-proxy to
# follow (docs/serving.md).
WINDOW = 25.0
# After that window. The head's own proxy still chooses between all replicas that Ray believes in, until Ray gives the
# node up, so that a few requests still meet a lost one.
AFTER_WINDOW = 0.99
# Until a replica of the cut cluster runs in the other one: Ray gives its node up after 65 s, KubeRay makes another
# worker at once, and on two cores a Ray node with a replica takes a minute.
HEALED = 150.0


@dataclass(frozen=True)
class Stage:
    """A part of the trial: `least` is the share of requests that must be answered in it, None where nothing is
    promised.
    """

    name: str
    begun: float
    ended: float
    least: float | None = None


@dataclass(frozen=True)
class Clock:
    """How long something took that has a bound."""

    name: str
    seconds: float
    most: float


def of(stage: Stage, seconds: Sequence[Second]) -> list[Second]:
    """The seconds of load that began in a stage."""
    return [one for one in seconds if stage.begun <= one.at < stage.ended]


def share(found: Sequence[Second]) -> float:
    """The part of the requests that was answered; nan of none."""
    asked = sum(one.asked for one in found)
    return 1 - sum(one.failed.total() for one in found) / asked if asked else math.nan


def table(stages: Sequence[Stage], seconds: Sequence[Second], clocks: Sequence[Clock]) -> str:
    """A row for each stage, and one for each clock."""
    rows: list[list[Value]] = [_row(stage, of(stage, seconds)) for stage in stages]
    head = ("stage", "seconds", "requests", "failed", "answered", "at least", "met")
    told = [[one.name, one.seconds, one.most, "yes" if one.seconds <= one.most else "no"] for one in clocks]
    return figures.table(head, rows) + "\n\n" + figures.table(("time", "seconds", "at most", "met"), told)


def _row(stage: Stage, found: Sequence[Second]) -> list[Value]:
    failed, answered = sum(one.failed.total() for one in found), share(found)
    least = "-" if stage.least is None else f"{stage.least:.2%}"
    met = "-" if stage.least is None else "yes" if answered >= stage.least else "no"
    return [stage.name, len(found), sum(one.asked for one in found), failed, f"{answered:.2%}", least, met]


def troubles(stages: Sequence[Stage], seconds: Sequence[Second]) -> list[str]:
    """A line for each second of a stage with failed requests: its time after the stage began, and the action then."""
    return [
        f"{stage.name} +{one.at - stage.begun:.0f} s: {one.failed.total()} of {one.asked} failed: {dict(one.failed)}; "
        f"answered by {dict(one.zones)} of {dict(one.releases)}"
        for stage in stages
        for one in of(stage, seconds)
        if one.failed
    ]


def missed(stages: Sequence[Stage], seconds: Sequence[Second], clocks: Sequence[Clock]) -> list[str]:
    """A sentence for each bound that was missed. A stage of which no second was seen has missed its own."""
    said = []
    for stage in stages:
        found = of(stage, seconds)
        if stage.least is not None and not share(found) >= stage.least:
            causes = sum((one.failed for one in found), Counter[str]())
            said.append(
                f"{stage.name}: {share(found):.2%} of {sum(one.asked for one in found)} requests were answered, "
                f"and {stage.least:.2%} must be; instead of an answer came {dict(causes)}."
            )
    return said + [
        f"{one.name} took {one.seconds:.1f} s, and may take {one.most:g} s." for one in clocks if one.seconds > one.most
    ]


def lines(stages: Sequence[Stage], seconds: Sequence[Second], clocks: Sequence[Clock]) -> list[str]:
    """The lines for programs."""
    told = []
    for stage in stages:
        found = of(stage, seconds)
        values: dict[str, Value] = {"stage": stage.name.replace(" ", "-"), "seconds": len(found)}
        values |= {"requests": sum(one.asked for one in found), "failed": sum(one.failed.total() for one in found)}
        told.append(figures.line("serving", values))
    return told + [
        figures.line("serving-time", {"what": one.name.replace(" ", "-"), "s": one.seconds}) for one in clocks
    ]
