"""Trials of many seeds, each in a process of its own, and the search for a short plan of one that failed."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

_PATIENCE = 900.0  # seconds for one trial


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial's process told."""

    seed: int
    hours: float = 0.0
    digest: str = ""
    steps: int = 0
    cpu: float = 0.0
    events: tuple[int, ...] = ()
    violations: tuple[tuple[str, str], ...] = ()
    fault: str = field(default="")  # why there is no outcome

    @property
    def rules(self) -> list[str]:
        return [rule for rule, _ in self.violations]


def attempt(seed: int, hours: float, only: Sequence[int] | None = None) -> Result:
    """Run a trial in a process of its own."""
    words = [sys.executable, "-m", "hack.simulation", "--seed", str(seed), "--hours", str(hours), "--json"]
    words += [] if only is None else ["--only", ",".join(map(str, only))]
    try:
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        ended = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=environment)
        said = json.loads(ended.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return Result(seed, fault=f"{type(error).__name__}: {getattr(locals().get('ended'), 'stderr', '')[-2_000:]}")
    violations = tuple((rule, text) for rule, text in said["violations"])
    return Result(seed, said["hours"], said["digest"], said["steps"], said["cpu"], tuple(said["events"]), violations)


def run(minutes: float, hours: float, first: int | None) -> int:
    """Run trials of drawn seeds on all processors; returns the exit code."""
    end, began = time.monotonic() + 60 * minutes, time.monotonic()
    seeds = _seeds(first)
    results: list[Result] = []

    def work(_: int) -> None:
        while time.monotonic() < end:
            results.append(result := attempt(next(seeds), hours))
            _tell(result)

    with ThreadPoolExecutor(workers := os.cpu_count() or 1) as pool:
        list(pool.map(work, range(workers)))
    took, steps = time.monotonic() - began, sum(one.steps for one in results)
    virtual, cpu = sum(one.hours for one in results), sum(one.cpu for one in results)
    rules = Counter(rule for one in results for rule in set(one.rules))
    broken = [one for one in results if one.violations or one.fault]
    print(
        f"{len(results)} trials, {virtual:.0f} virtual hours in {took / 60:.1f} min ({virtual / took * 60:.1f} a "
        f"minute), {steps / max(cpu, 0.1):.0f} steps a second; {len(broken)} broke a promise: {dict(rules)}"
    )
    return 1 if broken else 0


def _seeds(first: int | None) -> Iterator[int]:
    if first is not None:
        return iter(count(first))
    draw = random.SystemRandom()
    return iter(lambda: draw.randrange(10**6), None)


def _tell(result: Result) -> None:
    for _, text in result.violations:
        print(f"seed {result.seed}: {text}", flush=True)
    if result.fault:
        print(f"seed {result.seed}: no outcome: {result.fault}", flush=True)


def shrink(seed: int, hours: float, within: float) -> int:
    """Leave out events while the first promise that a seed breaks is still broken; prints what is left."""
    end, first = time.monotonic() + 60 * within, attempt(seed, hours)
    if not first.violations:
        print(f"seed {seed} breaks no promise: {first.fault}")
        return 0
    rule, events = first.rules[0], list(first.events)
    size = max(len(events) // 2, 1)
    while size and time.monotonic() < end:
        events, size = _without(seed, hours, rule, events, size, end)
    words = f"python -m hack.simulation --seed {seed} --hours {hours} --only {','.join(map(str, events))} --trace"
    print(f"seed {seed} breaks {rule!r} with {len(events)} of {len(first.events)} events: {words}")
    return 1


def _without(seed: int, hours: float, rule: str, events: list[int], size: int, end: float) -> tuple[list[int], int]:
    """Leave out pieces of so many events; returns what is left, and the size of the next pieces."""
    start = 0
    while start < len(events) and time.monotonic() < end:
        rest = events[:start] + events[start + size :]
        if rule in attempt(seed, hours, rest).rules:
            events = rest
        else:
            start += size
    return events, size // 2
