"""Trials of many seeds: for some minutes, until the first broken promise, and to shorten the plan of one."""

import math
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from hack.simulation.forked_trial import ANY, Request, Result, real_time, run_each, run_one


def run(minutes: float, hours: float, first: int | None, workers: int | None = None) -> int:
    """Run trials of drawn seeds, or of those from `first` on, for so long; returns the exit code."""
    began, results = real_time(), list[Result]()
    for result in run_each(_requests(began + 60 * minutes, hours, first), workers or os.cpu_count() or 1):
        results.append(result)
        _print(result, hours)
    broken = [result for result in results if result.violations or result.fault]
    print(_summary(results, broken, real_time() - began), flush=True)
    return 1 if broken else 0


def _requests(end: float, hours: float, first: int | None) -> Iterator[Request]:
    seeds = _seeds(first)
    while real_time() < end:
        yield Request(next(seeds), hours)


def _seeds(first: int | None) -> Iterator[int]:
    if first is not None:
        return iter(count(first))
    draw = random.SystemRandom()
    return iter(lambda: draw.randrange(10**6), None)


def _summary(results: list[Result], broken: list[Result], took: float) -> str:
    virtual, cpu = sum(result.hours for result in results), max(sum(result.cpu for result in results), 0.1)
    rules = Counter(rule for result in results for rule in set(result.rules))
    words = f": {dict(rules)}" if rules else ""
    return (
        f"{len(results)} trials, {virtual:.0f} virtual hours in {took / 60:.1f} min ({60 * virtual / took:.1f} a "
        f"minute, {60 * virtual / cpu:.1f} a minute of CPU), {sum(result.steps for result in results) / cpu:.0f} steps "
        f"a second of CPU; {len(broken)} broke a promise{words}"
    )


def _print(result: Result, hours: float) -> None:
    for _, text in result.violations:
        print(f"seed {result.seed}: {text}", flush=True)
    if result.fault:
        print(f"seed {result.seed}: no outcome: {result.fault}", flush=True)
    if result.violations or result.fault:
        print(f"To repeat it: python -m hack.simulation --seed {result.seed} --hours {hours:g} --trace", flush=True)


def find(most: int, hours: float, first: int, workers: int | None = None, longest: float = math.inf) -> Result | None:
    """A trial that breaks a promise, or has no outcome, of those from seed `first` on; None if none of `most` does."""
    requests = (Request(seed, hours, until=ANY, longest=longest) for seed in range(first, first + most))
    results = run_each(requests, workers or os.cpu_count() or 1)
    return next((result for result in results if result.violations or result.fault), None)


# Seconds by which a promise may be broken later when events are left out.
_LATER = 600.0


def shrink(seed: int, hours: float, within: float) -> int:
    """Leave out events while the first promise that a seed breaks is still broken; prints what is left."""
    end, first = real_time() + 60 * within, run_one(Request(seed, hours, until=ANY))
    if not first.violations:
        print(f"seed {seed} breaks no promise{first.fault and f': {first.fault}'}")
        return 0
    rule, events = first.rules[0], list(first.events)
    size, longest = max(len(events) // 2, 1), 3_600 * first.hours + _LATER
    while size and real_time() < end:
        events, size = _without(Request(seed, hours, events, rule, longest), size, end)
    words = f"python -m hack.simulation --seed {seed} --hours {hours:g} --only {','.join(map(str, events))} --trace"
    print(f"seed {seed} breaks {rule!r} with {len(events)} of {len(first.events)} events: {words}")
    return 1


def _without(request: Request, size: int, end: float) -> tuple[list[int], int]:
    """Leave out pieces of so many events; returns what is left, and the size of the next pieces."""
    events, start = list(request.only or ()), 0
    while start < len(events) and real_time() < end:
        rest = events[:start] + events[start + size :]
        if request.until in run_one(replace(request, only=rest)).rules:
            events = rest
        else:
            start += size
    return events, size // 2
