"""Tells the outcome of a trial, to people and to programs."""

import orjson

from hack.simulation.forked_trial import ANY as ANY
from hack.simulation.forked_trial import Result
from hack.simulation.trial import Outcome


def as_json(outcome: Outcome) -> str:
    """One line for the process that started the trial."""
    return orjson.dumps(
        {
            "seed": outcome.seed, "hours": outcome.virtual_hours, "digest": outcome.digest, "steps": outcome.steps,
            "requests": outcome.requests, "cpu": outcome.cpu_seconds,
            "events": [event.number for event in outcome.events],
            "violations": [[one.rule, str(one)] for one in outcome.violations],
        }
    ).decode()  # fmt: skip


def as_text(outcome: Outcome) -> str:
    """The events, the violations, and figures."""
    lines = [str(event) for event in outcome.events]
    lines += [f"VIOLATION {one}" for one in outcome.violations]
    lines.append(
        f"seed {outcome.seed}: {outcome.virtual_hours:.2f} virtual hours in {outcome.cpu_seconds:.1f} s of CPU, "
        f"{outcome.steps} steps, {outcome.requests} requests, {outcome.writes} writes, digest {outcome.digest}"
    )
    return "\n".join(lines)


def as_json_of_find(result: Result | None) -> str:
    """null, or the seed with the first promise that it breaks, or why it has no outcome."""
    if result is None:
        return "null"
    text = result.violations[0][1].strip() if result.violations else result.fault
    return orjson.dumps({"seed": result.seed, "hours": result.hours, "fault": result.fault, "text": text}).decode()


def as_text_of_find(result: Result | None, trials: int) -> str:
    """One line: the seed and the first promise that it breaks, and in how many virtual hours."""
    if result is None:
        return f"{trials} trials break no promise"
    if result.fault:
        return f"seed {result.seed}: no outcome: {result.fault}"
    return f"seed {result.seed}, after {result.hours:.2f} virtual hours:{result.violations[0][1]}"
