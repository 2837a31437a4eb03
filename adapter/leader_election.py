"""Which one of several processes may write? One candidate's part in a Lease, with the fields and times of client-go.

A candidate takes the Lease only when it has not seen it change for the Lease's duration by its own clock. A leader writes
only until its deadline, which it counts by its own clock from before it sent the renewal that was granted last. The
duration is half as long again as the deadline, and one clock may run that much faster than another before two may write at
once. Wall clocks are written into the Lease for people and never read: no two machines need agree on the time.

What this cannot promise: a request that was on its way when a leader was stopped may arrive after another one has begun.
The preconditions in each write (uid, resourceVersion, names that only one attempt can have) are for that, and for the few
seconds in which somebody deletes the Lease and a process starts that never saw it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adapter import names
from adapter.objects.unstructured import MAX_LEASE_TRANSITIONS, Raw, annotation, format_micro_time, meta

# The defaults of client-go and controller-runtime. A leader that dies is replaced after at most one look (RETRY) and the
# duration: 17 s and two requests. Shorter ones would exchange a leader whose API server is slow for a few seconds.
LEASE_DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_PERIOD_SECONDS = 2.0
# Half of the deadline, as controller-runtime has it: one request that hangs leaves time for another one.
REQUEST_TIMEOUT_SECONDS = RENEW_DEADLINE_SECONDS / 2


# Not renewed for so long, a Lease may well be free soon: half of the deadline, three looks. It leaves ten seconds in which what only a leader
# knows can be read; one that is renewed after all costs its candidate that read, and the memory.
NEAR_EXPIRY_SECONDS = RENEW_DEADLINE_SECONDS / 2


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """One process; all times are seconds of its own monotonic clock."""

    name: str  # no other process has it, not even the same one after a restart
    observed_version: str = ""  # version of the Lease, empty when there is none
    observed_at: float = -math.inf  # since when that has not changed; a candidate that never saw one waits for nobody
    renew_deadline: float | None = None  # it leads, and may write before this


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """Create the Lease, or patch it: a patch is refused if it is another version by now. Whoever succeeds leads."""

    body: dict[str, Any]
    create: bool
    previous_holder: str  # who held it before


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after so many seconds."""

    seconds: float
    holder: str = ""  # who leads, as far as known


@dataclass(frozen=True, slots=True)
class StepDown:
    """Another process may lead: write nothing more."""

    reason: str


def may_write(candidate: LeaseCandidate, now: float) -> bool:
    """Whether a write may be sent now."""
    return candidate.renew_deadline is not None and now < candidate.renew_deadline


def step_down_if_overdue(
    candidate: LeaseCandidate, now: float, reason: str = "this process did not run in time"
) -> StepDown | None:
    """What a leader does once its deadline is past; None as long as there is nothing to do."""
    if candidate.renew_deadline is None or now < candidate.renew_deadline:
        return None
    return StepDown(f"it was not renewed for {RENEW_DEADLINE_SECONDS:.0f} s: {reason}")


def request_timeout(candidate: LeaseCandidate, now: float) -> float:
    """For how many seconds an attempt may last: a leader's ends with its deadline."""
    return (
        REQUEST_TIMEOUT_SECONDS
        if candidate.renew_deadline is None
        else min(REQUEST_TIMEOUT_SECONDS, candidate.renew_deadline - now)
    )


def with_observation(candidate: LeaseCandidate, lease: Raw | None, now: float) -> LeaseCandidate:
    """The candidate after a look at the Lease (None: there is none).

    `now` is when the answer was there: what it shows may be newer than the question, and its holder counts from then.
    """
    version = "" if lease is None else str(meta(lease).get("resourceVersion") or "")
    return (
        candidate
        if version == candidate.observed_version
        else replace(candidate, observed_version=version, observed_at=now)
    )


def may_lead_soon(candidate: LeaseCandidate, lease: Raw | None, now: float) -> bool:
    """Whether a candidate leads, or may do so soon: nobody else holds the Lease, or its holder is late."""
    holder = str(_lease_spec(lease).get("holderIdentity") or "")
    return (
        candidate.renew_deadline is not None
        or holder in ("", candidate.name)
        or now - candidate.observed_at >= NEAR_EXPIRY_SECONDS
    )


def with_renewal(candidate: LeaseCandidate, sent: float) -> LeaseCandidate:
    """The candidate after its Put was granted; `sent` is before it left, since others count from when it arrived."""
    return replace(candidate, renew_deadline=sent + RENEW_DEADLINE_SECONDS)


def without_lead(candidate: LeaseCandidate) -> LeaseCandidate:
    """The candidate that leads no more, of its own will."""
    return replace(candidate, renew_deadline=None)


def decide(candidate: LeaseCandidate, lease: Raw | None, now: float, wall: datetime) -> LeaseWrite | Wait | StepDown:
    """What to do about the Lease as it was just seen; `wall` is what people read in it."""
    spec = _lease_spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    if late := step_down_if_overdue(candidate, now):
        return late
    if candidate.renew_deadline is not None:
        if lease is not None and holder != candidate.name:
            return StepDown(f"it is held by {holder or 'nobody'}")
        return _lease_write(candidate, lease, wall)
    left = candidate.observed_at + _lease_duration(spec) - now
    given_back = lease is not None and not holder
    # Its own name stands there although it does not lead: the answer to its Put was lost.
    if holder == candidate.name or given_back or left <= 0:
        return _lease_write(candidate, lease, wall)
    return Wait(min(RETRY_PERIOD_SECONDS, left), holder)


def decide_after_error(candidate: LeaseCandidate, now: float, reason: str) -> Wait | StepDown:
    """What to do when the Lease could not be read or written."""
    left = math.inf if candidate.renew_deadline is None else candidate.renew_deadline - now
    return step_down_if_overdue(candidate, now, reason) or Wait(min(RETRY_PERIOD_SECONDS, left))


def release_patch(candidate: LeaseCandidate, lease: Raw | None, wall: datetime) -> dict[str, Any] | None:
    """The patch by which a process that has stopped writing lets the next one begin at once; None: it is not its to give."""
    spec = _lease_spec(lease)
    if lease is None or spec.get("holderIdentity") != candidate.name:
        return None
    now = format_micro_time(wall)
    # A second is the least that the API allows; candidates that know no empty holder wait for no longer.
    body = _version_patch(
        lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
    )
    return {**body, "metadata": {**body["metadata"], "annotations": {names.GAVE_BACK_ANNOTATION: candidate.name}}}


def lease_holder(lease: Raw | None) -> str:
    """Who holds it, or who held it last and gave it back; empty when that is not known."""
    return str(_lease_spec(lease).get("holderIdentity") or "") or annotation(lease or {}, names.GAVE_BACK_ANNOTATION)


def _lease_write(candidate: LeaseCandidate, lease: Raw | None, wall: datetime) -> LeaseWrite:
    spec = _lease_spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    mine, now = holder == candidate.name, format_micro_time(wall)
    changes = _int_or_zero(spec.get("leaseTransitions")) + (not mine and lease is not None)
    fresh = {
        "holderIdentity": candidate.name,
        "leaseDurationSeconds": LEASE_DURATION_SECONDS,
        "acquireTime": spec.get("acquireTime") or now if mine else now,
        "renewTime": now,
        "leaseTransitions": changes if changes <= MAX_LEASE_TRANSITIONS else 0,
    }
    if lease is not None:
        return LeaseWrite(_version_patch(lease, fresh), False, holder)
    metadata = {"name": names.LEASE, "namespace": names.SYSTEM_NAMESPACE}
    return LeaseWrite(
        {"apiVersion": names.LEASE_API_VERSION, "kind": "Lease", "metadata": metadata, "spec": fresh}, True, ""
    )


def _version_patch(lease: Raw, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of this very version."""
    return {"metadata": {key: meta(lease).get(key) for key in ("uid", "resourceVersion")}, "spec": dict(spec)}


def _lease_spec(lease: Raw | None) -> Raw:
    return (lease or {}).get("spec") or {}


def _lease_duration(spec: Raw) -> float:
    """For how long a Lease that does not change is respected: as its holder says, and no less than our deadline needs."""
    return max(_int_or_zero(spec.get("leaseDurationSeconds")), LEASE_DURATION_SECONDS)


def _int_or_zero(value: Any) -> int:
    return value if isinstance(value, int) else 0
