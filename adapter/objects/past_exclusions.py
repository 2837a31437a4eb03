"""What earlier attempts of a Workload have learnt about worker clusters, as an annotation of the Workload keeps it.

An attempt's Placement is deleted when the attempt ends. Without this record the next attempt would plan on the same
cluster again, and wait as long for workers that cannot start there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeGuard

from adapter.objects.unstructured import format_time, parse_time

MAX_CLUSTERS = 100  # as many as a Placement's exclusions
_MAX_NAME_LENGTH = 63
_MAX_START_TIMEOUTS = 99
# More than all clusters need.
_MAX_LENGTH = 16_384


@dataclass(frozen=True, slots=True)
class PastExclusions:
    """The clusters that plans of the next attempt leave out, and how often workers did not start in time."""

    until: Mapping[str, datetime] = field(default_factory=dict)  # by cluster
    start_timeouts: int = 0


NO_PAST_EXCLUSIONS = PastExclusions()


def parse_past_exclusions(text: str) -> PastExclusions:
    """Read the annotation; a text that we cannot have written counts as none."""
    record = _load_record(text)
    excluded, start_timeouts = record.get("excluded"), record.get("unstarted")
    if not isinstance(excluded, dict) or len(excluded) > MAX_CLUSTERS or not _is_count(start_timeouts):
        return NO_PAST_EXCLUSIONS
    times = {cluster: parse_time(until) for cluster, until in excluded.items() if isinstance(until, str)}
    until = {cluster: time for cluster, time in times.items() if time and 0 < len(cluster) <= _MAX_NAME_LENGTH}
    return PastExclusions(until, start_timeouts) if len(until) == len(excluded) else NO_PAST_EXCLUSIONS


def format_past_exclusions(past: PastExclusions) -> str:
    excluded = {cluster: format_time(until) for cluster, until in list(past.until.items())[:MAX_CLUSTERS]}
    record = {"excluded": excluded, "unstarted": min(past.start_timeouts, _MAX_START_TIMEOUTS)}
    return json.dumps(record, separators=(",", ":"))


def _load_record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text) if 0 < len(text) <= _MAX_LENGTH else {}
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_START_TIMEOUTS
