"""Renders a preflight: tables and sentences for a terminal, one document for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.cli.common import format_table, join_lines
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, Finding, PreflightOptions
from adapter.preflight.probe import PathResult
from adapter.preflight.reachability import Reachability

_CHECKS = ("API", "Rights", "Namespace", "Queue", "Names", "Image", "DNS", "PodNetwork")
_RELAY = "Relay"  # shown where a cluster uses it
_OUTCOMES_BY_SEVERITY = ("failure", "warning", "ok")
_EMPTY_CELL = "-"


def render(
    sides: Sequence[ClusterFacts],
    request: PreflightOptions,
    findings: Sequence[Finding],
    reachabilities: Mapping[str, Reachability],
) -> str:
    """Text with a row for each cluster, a row for each ordered pair of clusters, and a sentence for each problem."""
    checks = (*_CHECKS, _RELAY) if any(side.relay_address for side in sides) else _CHECKS
    header = ("CLUSTER", *(check.upper() for check in checks), "PROBE", "REACHABLE")
    rows = [_cluster_row(side, checks, findings, reachabilities) for side in sides]
    parts = [
        join_lines(
            [
                f"Namespace {request.namespace}, LocalQueue {', '.join(request.queues) or _EMPTY_CELL}, "
                f"image {request.image}"
            ]
        ),
        format_table([header, *rows]),
        format_table([("FROM", "TO", "RESULT", "LATENCY", "BANDWIDTH", "CLOCK"), *_path_rows(sides)]),
        join_lines(f"{finding.outcome.capitalize()}: {finding.message}" for finding in _problem_findings(findings)),
        _verdict_line(findings),
    ]
    return "\n".join(part for part in parts if part)


def build_document(
    sides: Sequence[ClusterFacts],
    request: PreflightOptions,
    findings: Sequence[Finding],
    reachabilities: Mapping[str, Reachability],
) -> dict[str, Any]:
    """The document for programs; a path that was not probed has null fields."""
    return {
        "ready": evaluation.is_ready(findings),
        "namespace": request.namespace,
        "queues": list(request.queues),
        "image": request.image,
        "clusters": [_cluster_document(side, findings, reachabilities) for side in sides],
        "paths": [
            {
                "from": side.name,
                "to": other.name,
                "byRelay": _is_by_relay(side, other),
                **_path_document(side.paths.get(other.name)),
            }
            for side in sides
            for other in sides
            if side is not other
        ],
        "findings": [
            {
                "clusters": list(finding.clusters),
                "check": finding.check,
                "outcome": finding.outcome,
                "message": finding.message,
            }
            for finding in findings
        ],
    }


def _cluster_document(
    side: ClusterFacts, findings: Iterable[Finding], reachabilities: Mapping[str, Reachability]
) -> dict[str, Any]:
    reachability = reachabilities.get(side.name)
    checks = {
        check: worst
        for check in (*_CHECKS, _RELAY, "Probe")
        if (worst := _worst_outcome(side, check, findings)) != _EMPTY_CELL
    }
    return {
        "name": side.name,
        "manager": side.name == MANAGER,
        "checks": checks,
        "reachable": reachability.reached if reachability else None,
        "podCIDRs": list(side.networks),
    }


def _path_document(trip: PathResult | None) -> dict[str, Any]:
    return {
        "reached": None if trip is None else not trip.error,
        "error": trip.error if trip and trip.error else None,
        "latencyMilliseconds": trip and trip.milliseconds,
        "bandwidthMegabitsPerSecond": trip and trip.megabits,
        "clockAheadSeconds": trip and trip.clock_ahead,
        "seenAddress": trip.seen_address if trip and trip.seen_address else None,
    }


def _cluster_row(
    side: ClusterFacts, checks: Sequence[str], findings: Sequence[Finding], reachabilities: Mapping[str, Reachability]
) -> Sequence[str]:
    reachability = reachabilities.get(side.name)
    outcomes = [_worst_outcome(side, check, findings) for check in (*checks, "Probe")]
    return [side.name, *outcomes, str(reachability.reached) if reachability else _EMPTY_CELL]


def _worst_outcome(side: ClusterFacts, check: str, findings: Iterable[Finding]) -> str:
    outcomes = {finding.outcome for finding in findings if finding.check == check and side.name in finding.clusters}
    return next((outcome for outcome in _OUTCOMES_BY_SEVERITY if outcome in outcomes), _EMPTY_CELL)


def _path_rows(sides: Sequence[ClusterFacts]) -> Iterable[Sequence[str]]:
    for side in sides:
        for other in sides:
            if side is not other:
                cells = _path_cells(side.paths.get(other.name), by_relay=_is_by_relay(side, other))
                yield [side.name, other.name, *cells]


def _is_by_relay(side: ClusterFacts, other: ClusterFacts) -> bool:
    return bool(side.relay_address or other.relay_address)


def _path_cells(trip: PathResult | None, *, by_relay: bool) -> Sequence[str]:
    if by_relay:
        return ["by relay", _EMPTY_CELL, _EMPTY_CELL, _EMPTY_CELL]
    if trip is None:
        return ["not tested", _EMPTY_CELL, _EMPTY_CELL, _EMPTY_CELL]
    latency = (
        _EMPTY_CELL if trip.milliseconds is None else f"{trip.milliseconds:.{1 if trip.milliseconds >= 1 else 2}f} ms"
    )
    clock = _EMPTY_CELL if trip.clock_ahead is None else f"{round(trip.clock_ahead, 2) + 0:+.2f} s"  # never -0.00
    return [trip.error or "ok", latency, _format_bandwidth(trip.megabits), clock]


def _format_bandwidth(megabits: float | None) -> str:
    if megabits is None:
        return _EMPTY_CELL
    return f"{megabits / 1000:.1f} Gbit/s" if megabits >= 1000 else f"{megabits:.0f} Mbit/s"


def _problem_findings(findings: Iterable[Finding]) -> list[Finding]:
    problems = [finding for finding in findings if finding.outcome != "ok"]
    return sorted(problems, key=lambda problem: _OUTCOMES_BY_SEVERITY.index(problem.outcome))


def _verdict_line(findings: Iterable[Finding]) -> str:
    outcomes = [finding.outcome for finding in findings]
    failures, warnings = outcomes.count("failure"), outcomes.count("warning")
    with_warnings = f" with {_format_count(warnings, 'warning')}" if warnings else ""
    if failures:
        return (
            f"Not ready: {_format_count(failures, 'failure')}"
            f"{' and ' + _format_count(warnings, 'warning') if warnings else ''}.\n"
        )
    return f"Ready{with_warnings}: nothing was found that would keep workers from joining.\n"


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
