"""Leader election: one candidate's part in a Lease, with the fields and times of client-go.

A candidate takes the Lease only after it has observed an unchanged Lease, by its own clock, for as long as the Lease's
duration. A leader writes only until its deadline. It counts the deadline by its own clock, from before it sent the last
renewal that succeeded. The duration is half as long again as the deadline. So two processes could write at once only if
one's clock ran more than half as fast again as the other's. Wall clock times in the Lease are for people and are never
read, so machines need not agree on the time.

A request that was on its way when a leader stopped may arrive after another process has begun to lead. The
preconditions of each write (uid, resourceVersion, names that only one attempt can have) protect against that. The
preconditions also protect after a deletion of the Lease. A process that starts then never observed the old holder, and
leads at once, while that holder may still write for a few seconds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adapter import names
from adapter.objects.unstructured import MAX_LEASE_TRANSITIONS, Raw, annotation, format_micro_time, meta

# The defaults of client-go and controller-runtime. A leader that dies is replaced after at most one retry period and
# the duration: 17 s and two requests. Shorter times would replace a leader whose API server is slow for a few seconds.
LEASE_DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_PERIOD_SECONDS = 2.0
# The timeout of a request is half of the deadline, as in controller-runtime: if one request hangs, there is time for
# another.
REQUEST_TIMEOUT_SECONDS = RENEW_DEADLINE_SECONDS / 2


# A Lease that was not renewed for half of the deadline, two or three retries, may soon be free. The candidate then has
# ten seconds to read what only a leader needs. If the Lease is renewed after all, it has read that in vain.
NEAR_EXPIRY_SECONDS = RENEW_DEADLINE_SECONDS / 2


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """One process; all times are seconds of its own monotonic clock."""

    name: str  # no other process has this name, and a restarted process has another
    observed_version: str = ""  # resourceVersion of the Lease, empty if there is none
    # When that version was first observed; -inf, so that a candidate that has never observed a Lease does not wait for
    # its duration.
    observed_at: float = -math.inf
    renew_deadline: float | None = None  # set while it leads: it may write before this time


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """Create the Lease, or patch it if its version is unchanged. The process whose write succeeds leads."""

    body: dict[str, Any]
    create: bool
    previous_holder: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Retry after this many seconds."""

    seconds: float
    holder: str = ""  # the present leader, if known


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop writing: another process may lead."""

    reason: str


def may_write(candidate: LeaseCandidate, now: float) -> bool:
    """Whether the candidate may send a write now."""
    return candidate.renew_deadline is not None and now < candidate.renew_deadline


def step_down_if_overdue(
    candidate: LeaseCandidate, now: float, reason: str = "this process did not run in time"
) -> StepDown | None:
    """StepDown for a leader whose deadline has passed; None otherwise."""
    if candidate.renew_deadline is None or now < candidate.renew_deadline:
        return None
    return StepDown(f"it was not renewed for {RENEW_DEADLINE_SECONDS:.0f} s: {reason}")


def request_timeout(candidate: LeaseCandidate, now: float) -> float:
    """Timeout in seconds of a request for the Lease; a leader's request ends with its deadline."""
    return (
        REQUEST_TIMEOUT_SECONDS
        if candidate.renew_deadline is None
        else min(REQUEST_TIMEOUT_SECONDS, candidate.renew_deadline - now)
    )


def with_observation(candidate: LeaseCandidate, lease: Raw | None, now: float) -> LeaseCandidate:
    """The candidate after it read the Lease (None: there is none).

    `now` is when the response arrived. The Lease may have been renewed until the API server answered, so its duration
    is counted from the arrival of the response.
    """
    version = "" if lease is None else str(meta(lease).get("resourceVersion") or "")
    return (
        candidate
        if version == candidate.observed_version
        else replace(candidate, observed_version=version, observed_at=now)
    )


def may_lead_soon(candidate: LeaseCandidate, lease: Raw | None, now: float) -> bool:
    """Whether a candidate leads, or may do so soon: no other process holds the Lease, or its holder is late to renew
    it."""
    holder = str(_lease_spec(lease).get("holderIdentity") or "")
    return (
        candidate.renew_deadline is not None
        or holder in ("", candidate.name)
        or now - candidate.observed_at >= NEAR_EXPIRY_SECONDS
    )


def with_renewal(candidate: LeaseCandidate, sent: float) -> LeaseCandidate:
    """The candidate after its write succeeded.

    `sent` was read before the write was sent. So this process's deadline starts earlier than the duration that other
    candidates count from the write's arrival.
    """
    return replace(candidate, renew_deadline=sent + RENEW_DEADLINE_SECONDS)


def without_lead(candidate: LeaseCandidate) -> LeaseCandidate:
    """The candidate after it stopped leading by its own decision."""
    return replace(candidate, renew_deadline=None)


def decide(candidate: LeaseCandidate, lease: Raw | None, now: float, wall: datetime) -> LeaseWrite | Wait | StepDown:
    """What to do about the Lease as it was just read; `wall` is the time that is written into it for people."""
    spec = _lease_spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    if step_down := step_down_if_overdue(candidate, now):
        return step_down
    if candidate.renew_deadline is not None:
        if lease is not None and holder != candidate.name:
            return StepDown(f"it is held by {holder or 'nobody'}")
        return _lease_write(candidate, lease, wall)
    remaining = candidate.observed_at + _lease_duration(spec) - now
    released = lease is not None and not holder
    # The Lease names this candidate although it does not lead: the response to its write was lost.
    if holder == candidate.name or released or remaining <= 0:
        return _lease_write(candidate, lease, wall)
    return Wait(min(RETRY_PERIOD_SECONDS, remaining), holder)


def decide_after_error(candidate: LeaseCandidate, now: float, reason: str) -> Wait | StepDown:
    """What to do when the Lease could not be read or written."""
    remaining = math.inf if candidate.renew_deadline is None else candidate.renew_deadline - now
    return step_down_if_overdue(candidate, now, reason) or Wait(min(RETRY_PERIOD_SECONDS, remaining))


def release_patch(candidate: LeaseCandidate, lease: Raw | None, wall: datetime) -> dict[str, Any] | None:
    """The patch that releases the Lease, so that the next process leads at once; None if this process does not hold it.

    The process must have stopped writing.
    """
    spec = _lease_spec(lease)
    if lease is None or spec.get("holderIdentity") != candidate.name:
        return None
    now = format_micro_time(wall)
    # One second is the minimum of the API. Candidates that do not know an empty holder wait no longer than this second.
    body = _version_patch(
        lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
    )
    return {**body, "metadata": {**body["metadata"], "annotations": {names.GAVE_BACK_ANNOTATION: candidate.name}}}


def lease_holder(lease: Raw | None) -> str:
    """The holder, or the last holder if it released the Lease; empty if unknown."""
    return str(_lease_spec(lease).get("holderIdentity") or "") or annotation(lease or {}, names.GAVE_BACK_ANNOTATION)


def _lease_write(candidate: LeaseCandidate, lease: Raw | None, wall: datetime) -> LeaseWrite:
    spec = _lease_spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    holds_lease, now = holder == candidate.name, format_micro_time(wall)
    transitions = _int_or_zero(spec.get("leaseTransitions")) + (not holds_lease and lease is not None)
    new_spec = {
        "holderIdentity": candidate.name,
        "leaseDurationSeconds": LEASE_DURATION_SECONDS,
        "acquireTime": spec.get("acquireTime") or now if holds_lease else now,
        "renewTime": now,
        "leaseTransitions": transitions if transitions <= MAX_LEASE_TRANSITIONS else 0,
    }
    if lease is not None:
        return LeaseWrite(_version_patch(lease, new_spec), False, holder)
    metadata = {"name": names.LEASE, "namespace": names.SYSTEM_NAMESPACE}
    return LeaseWrite(
        {"apiVersion": names.LEASE_API_VERSION, "kind": "Lease", "metadata": metadata, "spec": new_spec}, True, ""
    )


def _version_patch(lease: Raw, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that applies to this version of the Lease only."""
    return {"metadata": {key: meta(lease).get(key) for key in ("uid", "resourceVersion")}, "spec": dict(spec)}


def _lease_spec(lease: Raw | None) -> Raw:
    return (lease or {}).get("spec") or {}


def _lease_duration(spec: Raw) -> float:
    """For how many seconds an unchanged Lease is respected: its own duration, but at least the one that our deadline
    needs."""
    return max(_int_or_zero(spec.get("leaseDurationSeconds")), LEASE_DURATION_SECONDS)


def _int_or_zero(value: Any) -> int:
    return value if isinstance(value, int) else 0
