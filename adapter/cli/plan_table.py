"""Renders a plan as text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.cli.common import TableRow, format_table, join_lines
from adapter.objects.extended_resources import describe_names

PlanDocument = dict[str, Any]  # of planning/plan_document.py, which only the controller imports
_HEADER = ("ASKED", "CLUSTER", "CHOSEN", "NOMINAL", "BORROWED", "EVER", "USED", "FREE", "PER HOUR", "WHY")
_EMPTY_CELL = "-"


def render(plan: PlanDocument) -> str:
    """The job, a table with one row for each cluster, and the verdict."""
    parts = [_job_lines(plan)]
    if plan["clusters"]:
        parts.append(format_table(_with_whole_price([_HEADER, *map(_cluster_row, plan["clusters"])], plan)))
    parts.append(_verdict_lines(plan))
    return "\n".join(parts)


def _with_whole_price(rows: Sequence[TableRow], plan: PlanDocument) -> list[TableRow]:
    """The rows with the price of the whole job in each cluster before the reason, if the plan has it."""
    prices = [cluster.get("pricePerHourOfAll") for cluster in plan["clusters"]]
    if not any(prices):
        return [*rows]
    cells = ["IF ALL", *(price or _EMPTY_CELL for price in prices)]
    return [[*row[:-1], cell, row[-1]] for row, cell in zip(rows, cells, strict=True)]


def _job_lines(plan: PlanDocument) -> str:
    job = plan["job"]
    groups = [_group_summary(group) for group in plan.get("groups", ())]
    requests = f": {'; '.join(groups)}" if groups else ""
    lines = [f"{job['kind']} {job['namespace']}/{job['name']}{requests}"]
    if "policy" in plan:
        strategy = ", ".join(str(plan[key]) for key in ("strategy", "gang") if key in plan)
        minimum = f" with {plan['minWorkers']} workers or more" if "minWorkers" in plan else ""
        lines.append(
            f"LocalQueue {plan['queue']}, DispatchPolicy {plan['policy']}{f': {strategy}{minimum}' if strategy else ''}"
        )
    return join_lines(lines)


def _group_summary(group: Mapping[str, Any]) -> str:
    count = group["workers"]
    resources = ", ".join(f"{name} {amount}" for name, amount in group["request"].items()) or "nothing"
    location = "".join(f", {field} {group[field]} only" for field in ("zone", "region") if field in group)
    noun = "worker" if count == 1 else "workers"
    return f"{count} {noun} of group {group['name']}, each {resources}{location}"


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
    limit = f"no more fit: {cluster['reason']}" if cluster["chosen"] and cluster["reason"] else cluster["reason"]
    preemption = "others must be preempted" if cluster.get("preempts") else ""
    renamed = "" if cluster["reason"] else describe_names(cluster.get("resourceNames", {}))  # a reason has them
    return "; ".join(filter(None, (groups, preemption, limit, renamed))) or _EMPTY_CELL


def _verdict_lines(plan: PlanDocument) -> str:
    lines = [f"{'Fits' if plan['fits'] else 'Does not fit'}: {plan['sentence']}"]
    if "pricePerHour" in plan:
        unpriced = " and ".join(plan.get("withoutPrice", ()))
        lines.append(
            f"Price per hour: {plan['pricePerHour']}{f', {unpriced} not counted: no price there' if unpriced else ''}."
        )
    return join_lines([*lines, *plan.get("notes", ())])
