"""Tells the outcome of a trial, to people and to programs."""

import orjson

from hack.simulation.trial import Outcome

_LINES = 60  # of the trace before the first violation


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
