"""How does a plan look on a terminal: the answer as text, nothing added but what a reader needs to tell columns apart."""

from collections.abc import Mapping
from typing import Any

from adapter.cli.common import TableRow, format_table, join_lines

PlanDocument = dict[str, Any]  # as planning/plan_document.py makes it, which the controller alone imports
_HEADER = ("ASKED", "CLUSTER", "CHOSEN", "NOMINAL", "BORROWED", "EVER", "USED", "FREE", "PER HOUR", "WHY")
_EMPTY_CELL = "-"


def render(plan: PlanDocument) -> str:
    """The plan as lines, each ended: what is asked for, one row for each cluster, and the answer in a sentence."""
    parts = [_job_lines(plan)]
    if plan["clusters"]:
        parts.append(format_table([_HEADER, *(_cluster_row(one) for one in plan["clusters"])]))
    parts.append(_verdict_lines(plan))
    return "\n".join(parts)


def _job_lines(plan: PlanDocument) -> str:
    job = plan["job"]
    groups = [_group_summary(group) for group in plan.get("groups", ())]
    wants = f": {'; '.join(groups)}" if groups else ""
    lines = [f"{job['kind']} {job['namespace']}/{job['name']}{wants}"]
    if "policy" in plan:
        how = ", ".join(str(plan[key]) for key in ("strategy", "gang") if key in plan)
        least = f" with {plan['minWorkers']} workers or more" if "minWorkers" in plan else ""
        lines.append(f"LocalQueue {plan['queue']}, DispatchPolicy {plan['policy']}{f': {how}{least}' if how else ''}")
    return join_lines(lines)


def _group_summary(group: Mapping[str, Any]) -> str:
    count = group["workers"]
    asks = ", ".join(f"{name} {amount}" for name, amount in group["request"].items()) or "nothing"
    zone = f", zone {group['zone']} only" if "zone" in group else ""
    noun = "worker" if count == 1 else "workers"
    return f"{count} {noun} of group {group['name']}, each {asks}{zone}"


def _cluster_row(cluster: Mapping[str, Any]) -> TableRow:
    scarce = cluster["scarcest"]
    used, free = (f"{scarce['resource']} {scarce[which]}" if scarce else _EMPTY_CELL for which in ("used", "free"))
    counts = [str(cluster[name]) for name in ("chosen", "nominal", "borrow", "ever")]
    return [
        str(cluster["asked"] or _EMPTY_CELL),
        cluster["cluster"],
        *counts,
        used,
        free,
        cluster["pricePerHour"] or _EMPTY_CELL,
        _reason_cell(cluster),
    ]


def _reason_cell(cluster: Mapping[str, Any]) -> str:
    groups = ", ".join(f"{count} of {name}" for name, count in cluster.get("groups", {}).items())
    more = f"no more fit: {cluster['reason']}" if cluster["chosen"] and cluster["reason"] else cluster["reason"]
    back = "others must be preempted" if cluster.get("preempts") else ""
    return "; ".join(filter(None, (groups, back, more))) or _EMPTY_CELL


def _verdict_lines(plan: PlanDocument) -> str:
    lines = [f"{'Fits' if plan['fits'] else 'Does not fit'}: {plan['sentence']}"]
    if "pricePerHour" in plan:
        without = " and ".join(plan.get("withoutPrice", ()))
        lines.append(
            f"Price per hour: {plan['pricePerHour']}{f', {without} not counted: no price there' if without else ''}."
        )
    return join_lines([*lines, *plan.get("notes", ())])
