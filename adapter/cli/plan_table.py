"""How does a plan look on a terminal: the answer as text, nothing added but what a reader needs to tell columns apart."""

from collections.abc import Mapping
from typing import Any

from adapter.cli.common import Row, as_lines, columns

Answer = dict[str, Any]  # as planning/plan_document.py makes it, which the controller alone imports
_HEADER = ("ASKED", "CLUSTER", "CHOSEN", "NOMINAL", "BORROWED", "EVER", "USED", "FREE", "PER HOUR", "WHY")
_NONE = "-"


def render(answer: Answer, above: str = "") -> str:
    """The plan as lines, each ended: what is asked for, one row for each cluster, and the answer in a sentence, unless that stands in
    what its reader finds `above`."""
    parts = [_about(answer)]
    if answer["clusters"]:
        parts.append(columns([_HEADER, *(_row(one) for one in answer["clusters"])]))
    parts.append(_verdict(answer, above))
    return "\n".join(parts)


def _about(answer: Answer) -> str:
    job = answer["job"]
    groups = [_group(group) for group in answer.get("groups", ())]
    wants = f": {'; '.join(groups)}" if groups else ""
    lines = [f"{job['kind']} {job['namespace']}/{job['name']}{wants}"]
    if "policy" in answer:
        how = ", ".join(str(answer[key]) for key in ("strategy", "gang") if key in answer)
        least = f" with {answer['minWorkers']} workers or more" if "minWorkers" in answer else ""
        lines.append(
            f"LocalQueue {answer['queue']}, DispatchPolicy {answer['policy']}{f': {how}{least}' if how else ''}"
        )
    return as_lines(lines)


def _group(group: Mapping[str, Any]) -> str:
    count = group["workers"]
    asks = ", ".join(f"{name} {amount}" for name, amount in group["request"].items()) or "nothing"
    zone = f", zone {group['zone']} only" if "zone" in group else ""
    noun = "worker" if count == 1 else "workers"
    return f"{count} {noun} of group {group['name']}, each {asks}{zone}"


def _row(one: Mapping[str, Any]) -> Row:
    scarce = one["scarcest"]
    used, free = (f"{scarce['resource']} {scarce[which]}" if scarce else _NONE for which in ("used", "free"))
    counts = [str(one[name]) for name in ("chosen", "nominal", "borrow", "ever")]
    return [str(one["asked"] or _NONE), one["cluster"], *counts, used, free, one["pricePerHour"] or _NONE, _why(one)]


def _why(one: Mapping[str, Any]) -> str:
    groups = ", ".join(f"{count} of {name}" for name, count in one.get("groups", {}).items())
    more = f"no more fit: {one['reason']}" if one["chosen"] and one["reason"] else one["reason"]
    back = "others must be preempted" if one.get("preempts") else ""
    return "; ".join(filter(None, (groups, back, more))) or _NONE


def _verdict(answer: Answer, above: str) -> str:
    said = str(answer["sentence"])
    why = ", as said above." if said and f" {said} " in f" {above} " else f": {said}"
    lines = [f"{'Fits' if answer['fits'] else 'Does not fit'}{why}"]
    if "pricePerHour" in answer:
        without = " and ".join(answer.get("withoutPrice", ()))
        lines.append(
            f"Price per hour: {answer['pricePerHour']}{f', {without} not counted: no price there' if without else ''}."
        )
    return as_lines([*lines, *answer.get("notes", ())])
