"""Judges the demo: the job's end, its result, and where its Ray nodes ran.

Ray's own account of the nodes is compared with the pods of each cluster. It reads no cluster itself.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from adapter.relay.relay_network import CLUSTER_DOMAIN
from hack.demo.watch import Seen

_MARK = "RAYSPAN-RESULT "
_CHATTER = re.compile(
    r"^\s*$|^-+$|\t(INFO|WARNING|SUCC) |^(Job '|Next steps|  (Query|Request|Stop|Tail))|^RAYSPAN-RESULT|    ray job "
)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Node:
    """One Ray node: what Ray says of it, and where its pod was seen."""

    address: str
    cluster: str
    zone: str
    head: bool
    tasks: int
    seen_in: str


def own_output(log: str) -> str:
    """The job's own output, without the messages of Ray's submitter and the line for programs."""
    return "\n".join(line for line in _COLORS.sub("", log).splitlines() if not _CHATTER.search(line))


def result(log: str) -> dict[str, Any]:
    """The line that the job prints for programs, {} if it printed none."""
    said = next((line for line in log.splitlines() if line.startswith(_MARK)), "")
    found: dict[str, Any] = json.loads(said.removeprefix(_MARK)) if said else {}
    return found


def nodes(found: dict[str, Any], seen: Seen) -> list[Node]:
    return [Node(**row, seen_in=seen.homes.get(row["address"], "nowhere")) for row in found.get("nodes", ())]


def table(rows: list[Node]) -> str:
    lines = [("RAY NODE", "ROLE", "CLUSTER", "ZONE", "TASKS", "ITS POD RUNS IN")]
    lines += [
        (
            _short_address(row.address),
            "head" if row.head else "worker",
            row.cluster,
            row.zone or "-",
            str(row.tasks),
            row.seen_in,
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(f"{word:<{n}}" for word, n in zip(line, widths, strict=True)).rstrip() for line in lines)


def _short_address(address: str) -> str:
    """The pod's name, where Ray knows its nodes by names; these are long."""
    host, _, domain = address.partition(".")
    return host if domain.endswith(CLUSTER_DOMAIN) else address


def faults(seen: Seen, found: dict[str, Any], rows: list[Node], workers: set[str]) -> list[str]:
    """The broken promises, one sentence each. `workers` are the names of the worker clusters."""
    status = seen.job.get("status", {})
    wrong = []
    if status.get("jobStatus") != "SUCCEEDED":
        why = status.get("message") or status.get("reason") or "it gives no reason"
        wrong.append(
            f"The RayJob is {status.get('jobStatus') or status.get('jobDeploymentStatus')}, not SUCCEEDED: {why}."
        )
    if not found:
        return [*wrong, "The job's log has no line with its result."]
    if not found.get("ok"):
        wrong.append("The job itself says that its result is not good.")
    return wrong + _misplaced([row for row in rows if not row.head], workers)


def _misplaced(rows: list[Node], workers: set[str]) -> list[str]:
    wrong = [
        f"Ray says that {row.address} is in {row.cluster or 'no cluster'}, but its pod was seen in {row.seen_in}."
        for row in rows
        if row.cluster != row.seen_in
    ]
    used = {row.seen_in for row in rows}
    if used - workers:
        wrong.append(f"Workers ran outside the worker clusters: in {', '.join(sorted(used - workers))}.")
    if len(used & workers) < 2:
        wrong.append(f"The workers ran in {', '.join(sorted(used)) or 'no cluster'} only, not in two worker clusters.")
    return wrong
