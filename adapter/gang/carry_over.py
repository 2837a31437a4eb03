"""What an attempt has learnt about worker clusters, carried into the next attempt of its Workload.

An attempt's Placement is deleted when the job queues again, is deactivated or is evicted. So its exclusions, and how
often workers did not start in time, are recorded on the Workload before. A job that queues again because workers did
not start also records the clusters where they did not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from adapter.actions import Action, DeletePlacement, RecordExclusions, RequeueAfter
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import (
    SOON,
    current_exclusions,
    past_exclusions,
    past_start_timeouts,
    start_timeout_exclusion,
)
from adapter.objects.past_exclusions import MAX_CLUSTERS, PastExclusions
from adapter.objects.placement import Exclusion, Placement
from adapter.objects.workload import Workload


def record_late_clusters(
    gang: Gang, workload: Workload, placement: Placement, clusters: Iterable[str], now: datetime
) -> PastExclusions | None:
    """The record of an attempt that ends because workers did not start in these clusters; None if none is to blame.

    Where the attempt's last plan excluded them all, it has counted this timeout.
    """
    blamed_clusters = dict.fromkeys(clusters)
    if not blamed_clusters:
        return None
    excluded = {exclusion.cluster for exclusion in _exclusions_of(gang, [placement], now)}
    new_timeouts = 0 if placement.start_timeouts and excluded.issuperset(blamed_clusters) else 1
    before = replace(placement, start_timeouts=placement.start_timeouts + new_timeouts - 1)
    until = now + start_timeout_exclusion(gang.policy.start_timeout, before)
    exclusions = [Exclusion(cluster, until, "") for cluster in blamed_clusters]
    return record_exclusions(gang, workload, placement, exclusions, now, start_timeouts=new_timeouts)


def record_exclusions(
    gang: Gang,
    workload: Workload,
    placement: Placement,
    exclusions: Sequence[Exclusion],
    now: datetime,
    *,
    start_timeouts: int = 0,
) -> PastExclusions:
    """The record of an attempt that ends now and learns these exclusions."""
    known = (*exclusions, *_exclusions_of(gang, [placement], now))
    return _merge(gang, workload, known, placement.start_timeouts + start_timeouts, now)


def delete_placements(gang: Gang, workload: Workload, placements: Sequence[Placement], now: datetime) -> list[Action]:
    """Delete the Placements of ended attempts, after their exclusions are recorded."""
    if unrecorded := record_before_deletion(gang, workload, placements, now):
        return unrecorded
    return [DeletePlacement(placement) for placement in placements]


def record_before_deletion(
    gang: Gang, workload: Workload, placements: Sequence[Placement], now: datetime
) -> list[Action]:
    """Record the exclusions of ended attempts; empty once that is done or denied, or if there are none."""
    if gang.job.record_denied:
        return []
    exclusions = _exclusions_of(gang, placements, now)
    recorded = {exclusion.cluster: exclusion.until for exclusion in _past_exclusions(gang, workload, now)}
    if all(_is_recorded(exclusion, recorded, now) for exclusion in exclusions[:MAX_CLUSTERS]):
        return []
    record = _merge(gang, workload, exclusions, max(placement.start_timeouts for placement in placements), now)
    return [RecordExclusions(workload, record), RequeueAfter(SOON)]


def exclusions_for_start(gang: Gang, workload: Workload, now: datetime) -> tuple[Exclusion, ...]:
    """The exclusions that the first plan of an attempt takes over."""
    return _latest_exclusions((*_exclusions_of(gang, gang.placements, now), *_past_exclusions(gang, workload, now)))


def start_timeouts_before(gang: Gang, workload: Workload, now: datetime) -> int:
    """How often workers did not start in time in earlier attempts."""
    return past_start_timeouts(workload, now, gang.policy.start_timeout)


def _exclusions_of(gang: Gang, placements: Iterable[Placement], now: datetime) -> tuple[Exclusion, ...]:
    timeout = gang.policy.start_timeout
    return tuple(entry for placement in placements for entry in current_exclusions(placement, now, timeout))


def _past_exclusions(gang: Gang, workload: Workload, now: datetime) -> tuple[Exclusion, ...]:
    return past_exclusions(workload, now, gang.policy.start_timeout)


def _is_recorded(exclusion: Exclusion, recorded: dict[str, datetime], now: datetime) -> bool:
    """Whether most of an exclusion is recorded; the annotation has whole seconds."""
    return recorded.get(exclusion.cluster, now) - now >= (exclusion.until - now) / 2


def _merge(
    gang: Gang, workload: Workload, exclusions: Iterable[Exclusion], start_timeouts: int, now: datetime
) -> PastExclusions:
    """A record with these exclusions first, so that the bound drops older ones."""
    latest = _latest_exclusions((*exclusions, *_past_exclusions(gang, workload, now)))
    until = {exclusion.cluster: exclusion.until for exclusion in latest}
    return PastExclusions(until, max(start_timeouts, start_timeouts_before(gang, workload, now)))


def _latest_exclusions(exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """Of each cluster the exclusion that ends last, in the order of the clusters; at most `MAX_CLUSTERS`."""
    latest: dict[str, Exclusion] = {}
    for exclusion in exclusions:
        if exclusion.cluster not in latest or latest[exclusion.cluster].until < exclusion.until:
            latest[exclusion.cluster] = exclusion
    return tuple(latest.values())[:MAX_CLUSTERS]
