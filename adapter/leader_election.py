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
LEASE_SECONDS = 15
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
# Half of the deadline, as controller-runtime has it: one request that hangs leaves time for another one.
REQUEST_SECONDS = RENEW_SECONDS / 2


# Not renewed for so long, a Lease may well be free soon: half of the deadline, three looks. It leaves ten seconds in which what only a leader
# knows can be read; one that is renewed after all costs its candidate that read, and the memory.
LATE_SECONDS = RENEW_SECONDS / 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process; all times are seconds of its own monotonic clock."""

    name: str  # no other process has it, not even the same one after a restart
    seen: str = ""  # version of the Lease, empty when there is none
    since: float = -math.inf  # since when that has not changed; a candidate that never saw one waits for nobody
    until: float | None = None  # it leads, and may write before this


@dataclass(frozen=True, slots=True)
class Put:
    """Create the Lease, or patch it: a patch is refused if it is another version by now. Whoever succeeds leads."""

    body: dict[str, Any]
    create: bool
    follows: str  # who held it before


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after so many seconds."""

    seconds: float
    holder: str = ""  # who leads, as far as known


@dataclass(frozen=True, slots=True)
class StepDown:
    """Another process may lead: write nothing more."""

    why: str


def may_write(me: Candidate, now: float) -> bool:
    """Whether a write may be sent now."""
    return me.until is not None and now < me.until


def overdue(me: Candidate, now: float, why: str = "this process did not run in time") -> StepDown | None:
    """What a leader does once its deadline is past; None as long as there is nothing to do."""
    if me.until is None or now < me.until:
        return None
    return StepDown(f"it was not renewed for {RENEW_SECONDS:.0f} s: {why}")


def patience(me: Candidate, now: float) -> float:
    """For how many seconds an attempt may last: a leader's ends with its deadline."""
    return REQUEST_SECONDS if me.until is None else min(REQUEST_SECONDS, me.until - now)


def saw(me: Candidate, lease: Raw | None, now: float) -> Candidate:
    """The candidate after a look at the Lease (None: there is none).

    `now` is when the answer was there: what it shows may be newer than the question, and its holder counts from then.
    """
    version = "" if lease is None else str(meta(lease).get("resourceVersion") or "")
    return me if version == me.seen else replace(me, seen=version, since=now)


def near(me: Candidate, lease: Raw | None, now: float) -> bool:
    """Whether a candidate leads, or may do so soon: nobody else holds the Lease, or its holder is late."""
    holder = str(_spec(lease).get("holderIdentity") or "")
    return me.until is not None or holder in ("", me.name) or now - me.since >= LATE_SECONDS


def granted(me: Candidate, sent: float) -> Candidate:
    """The candidate after its Put was granted; `sent` is before it left, since others count from when it arrived."""
    return replace(me, until=sent + RENEW_SECONDS)


def resigned(me: Candidate) -> Candidate:
    """The candidate that leads no more, of its own will."""
    return replace(me, until=None)


def decide(me: Candidate, lease: Raw | None, now: float, wall: datetime) -> Put | Wait | StepDown:
    """What to do about the Lease as it was just seen; `wall` is what people read in it."""
    spec = _spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    if late := overdue(me, now):
        return late
    if me.until is not None:
        if lease is not None and holder != me.name:
            return StepDown(f"it is held by {holder or 'nobody'}")
        return _put(me, lease, wall)
    left = me.since + _duration(spec) - now
    given_back = lease is not None and not holder
    # Its own name stands there although it does not lead: the answer to its Put was lost.
    if holder == me.name or given_back or left <= 0:
        return _put(me, lease, wall)
    return Wait(min(RETRY_SECONDS, left), holder)


def missed(me: Candidate, now: float, why: str) -> Wait | StepDown:
    """What to do when the Lease could not be read or written."""
    left = math.inf if me.until is None else me.until - now
    return overdue(me, now, why) or Wait(min(RETRY_SECONDS, left))


def giving_back(me: Candidate, lease: Raw | None, wall: datetime) -> dict[str, Any] | None:
    """The patch by which a process that has stopped writing lets the next one begin at once; None: it is not its to give."""
    spec = _spec(lease)
    if lease is None or spec.get("holderIdentity") != me.name:
        return None
    now = format_micro_time(wall)
    # A second is the least that the API allows; candidates that know no empty holder wait for no longer.
    body = _patch(lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now})
    return {**body, "metadata": {**body["metadata"], "annotations": {names.GAVE_BACK_ANNOTATION: me.name}}}


def leader(lease: Raw | None) -> str:
    """Who holds it, or who held it last and gave it back; empty when that is not known."""
    return str(_spec(lease).get("holderIdentity") or "") or annotation(lease or {}, names.GAVE_BACK_ANNOTATION)


def _put(me: Candidate, lease: Raw | None, wall: datetime) -> Put:
    spec = _spec(lease)
    holder = str(spec.get("holderIdentity") or "")
    mine, now = holder == me.name, format_micro_time(wall)
    changes = _number(spec.get("leaseTransitions")) + (not mine and lease is not None)
    fresh = {
        "holderIdentity": me.name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "acquireTime": spec.get("acquireTime") or now if mine else now,
        "renewTime": now,
        "leaseTransitions": changes if changes <= MAX_LEASE_TRANSITIONS else 0,
    }
    if lease is not None:
        return Put(_patch(lease, fresh), False, holder)
    metadata = {"name": names.LEASE, "namespace": names.SYSTEM_NAMESPACE}
    return Put({"apiVersion": names.LEASE_API_VERSION, "kind": "Lease", "metadata": metadata, "spec": fresh}, True, "")


def _patch(lease: Raw, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of this very version."""
    return {"metadata": {key: meta(lease).get(key) for key in ("uid", "resourceVersion")}, "spec": dict(spec)}


def _spec(lease: Raw | None) -> Raw:
    return (lease or {}).get("spec") or {}


def _duration(spec: Raw) -> float:
    """For how long a Lease that does not change is respected: as its holder says, and no less than our deadline needs."""
    return max(_number(spec.get("leaseDurationSeconds")), LEASE_SECONDS)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
