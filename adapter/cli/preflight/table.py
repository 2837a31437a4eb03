"""How does a preflight look: on a terminal as tables and sentences, for programs as one document."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.cli.common import columns
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import MANAGER, Asked, Finding, Side
from adapter.preflight.probe import Trip
from adapter.preflight.reachability import Reachability

_CHECKS = ("API", "Rights", "Namespace", "Queue", "Image", "DNS", "PodNetwork")
_WORST = ("failure", "warning", "ok")
_NONE = "-"


def render(
    sides: Sequence[Side], asked: Asked, findings: Sequence[Finding], reached: Mapping[str, Reachability]
) -> str:
    """Lines, each ended: a row for each cluster, a row for each way between two, and a sentence for all that is not well."""
    header = ("CLUSTER", *(check.upper() for check in _CHECKS), "PROBE", "REACHABLE")
    rows = [_cluster(side, findings, reached) for side in sides]
    parts = [
        f"Namespace {asked.namespace}, LocalQueue {', '.join(asked.queues) or _NONE}, image {asked.image}\n",
        columns([header, *rows]),
        columns([("FROM", "TO", "RESULT", "LATENCY", "BANDWIDTH", "CLOCK"), *_ways(sides)]),
        "".join(f"{one.outcome.capitalize()}: {one.message}\n" for one in _trouble(findings)),
        _verdict(findings),
    ]
    return "\n".join(part for part in parts if part)


def document(
    sides: Sequence[Side], asked: Asked, findings: Sequence[Finding], reached: Mapping[str, Reachability]
) -> dict[str, Any]:
    """The same for programs; what was not tried is null."""
    return {
        "ready": evaluation.ready(findings),
        "namespace": asked.namespace,
        "queues": list(asked.queues),
        "image": asked.image,
        "clusters": [_as_cluster(side, findings, reached) for side in sides],
        "paths": [
            {"from": one.name, "to": other.name, **_as_path(one.trips.get(other.name))}
            for one in sides
            for other in sides
            if one is not other
        ],
        "findings": [
            {"clusters": list(one.clusters), "check": one.check, "outcome": one.outcome, "message": one.message}
            for one in findings
        ],
    }


def _as_cluster(side: Side, findings: Iterable[Finding], reached: Mapping[str, Reachability]) -> dict[str, Any]:
    found = reached.get(side.name)
    checks = {check: worst for check in (*_CHECKS, "Probe") if (worst := _worst(side, check, findings)) != _NONE}
    return {
        "name": side.name,
        "manager": side.name == MANAGER,
        "checks": checks,
        "reachable": found.reached if found else None,
        "podCIDRs": list(side.networks),
    }


def _as_path(trip: Trip | None) -> dict[str, Any]:
    return {
        "reached": None if trip is None else not trip.error,
        "error": trip.error if trip and trip.error else None,
        "latencyMilliseconds": trip and trip.milliseconds,
        "bandwidthMegabitsPerSecond": trip and trip.megabits,
        "clockAheadSeconds": trip and trip.ahead,
    }


def _cluster(side: Side, findings: Sequence[Finding], reached: Mapping[str, Reachability]) -> Sequence[str]:
    found = reached.get(side.name)
    checks = [_worst(side, check, findings) for check in (*_CHECKS, "Probe")]
    return [side.name, *checks, str(found.reached) if found else _NONE]


def _worst(side: Side, check: str, findings: Iterable[Finding]) -> str:
    outcomes = {one.outcome for one in findings if one.check == check and side.name in one.clusters}
    return next((outcome for outcome in _WORST if outcome in outcomes), _NONE)


def _ways(sides: Sequence[Side]) -> Iterable[Sequence[str]]:
    for one in sides:
        for other in sides:
            if one is not other:
                yield [one.name, other.name, *_way(one.trips.get(other.name))]


def _way(trip: Trip | None) -> Sequence[str]:
    if trip is None:
        return ["not tried", _NONE, _NONE, _NONE]
    latency = _NONE if trip.milliseconds is None else f"{trip.milliseconds:.{1 if trip.milliseconds >= 1 else 2}f} ms"
    clock = _NONE if trip.ahead is None else f"{round(trip.ahead, 2) + 0:+.2f} s"  # no -0.00
    return [trip.error or "ok", latency, _speed(trip.megabits), clock]


def _speed(megabits: float | None) -> str:
    if megabits is None:
        return _NONE
    return f"{megabits / 1000:.1f} Gbit/s" if megabits >= 1000 else f"{megabits:.0f} Mbit/s"


def _trouble(findings: Iterable[Finding]) -> list[Finding]:
    found = [one for one in findings if one.outcome != "ok"]
    return sorted(found, key=lambda one: _WORST.index(one.outcome))


def _verdict(findings: Iterable[Finding]) -> str:
    counts = [one.outcome for one in findings]
    failures, warnings = counts.count("failure"), counts.count("warning")
    said = f" with {_counted(warnings, 'warning')}" if warnings else ""
    if failures:
        return f"Not ready: {_counted(failures, 'failure')}{' and ' + _counted(warnings, 'warning') if warnings else ''}.\n"
    return f"Ready{said}: nothing was found that would keep workers from joining.\n"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
