"""Reads the controller's own metrics at one moment: memory, tasks, watches, open files. It judges nothing."""

import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from hack.testbed import deployment
from hack.testbed.clusters import Cluster

_SCRAPED = "RequestHandler."  # the tasks that answer a scrape, our own included
_TIMES, _PAUSE = (
    9,
    1.0,
)  # a watch that is just resumed, or a key that is just reconciled, is in one of them at most


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the controller; `tasks` by what they run, `watches` by cluster and kind."""

    rss: float  # kilobytes
    fds: int
    tasks: Mapping[str, int]
    watches: Mapping[str, int]


def parse(text: str) -> Reading:
    """Read what /metrics says."""
    found: dict[str, Counter[str]] = {"rayspan_tasks": Counter(), "rayspan_watches": Counter()}
    plain: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in found:
                words = "/".join(value or "manager" for _, value in sorted(sample.labels.items()))
                found[sample.name][words] += int(sample.value)
            elif not sample.labels:
                plain[sample.name] = sample.value
    tasks = {name: number for name, number in found["rayspan_tasks"].items() if not name.startswith(_SCRAPED)}
    rss = plain.get("process_resident_memory_bytes", float("nan")) / 1024
    return Reading(rss, int(plain.get("process_open_fds", 0)), tasks, +found["rayspan_watches"])


def at_rest(manager: Cluster) -> Reading:
    """The resting state: the medians of some readings, so that passing values do not count."""
    readings = []
    for _ in range(_TIMES):
        readings.append(parse(deployment.exposition(manager)))
        time.sleep(_PAUSE)
    return median(readings)


def median(readings: Sequence[Reading]) -> Reading:
    """The medians of each figure; one that a reading lacks is 0 there."""
    return Reading(
        rss=statistics.median(one.rss for one in readings),
        fds=statistics.median_low(one.fds for one in readings),
        tasks=_medians([one.tasks for one in readings]),
        watches=_medians([one.watches for one in readings]),
    )


def _medians(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    every = sorted({name for one in counts for name in one})
    found = {name: statistics.median_low(one.get(name, 0) for one in counts) for name in every}
    return {name: number for name, number in found.items() if number}
