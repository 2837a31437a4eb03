"""Decides which leader of which manager may write to a worker cluster, by a claim: a Lease in that cluster.

A manager is known in the worker cluster by the uid of its kube-system namespace. A clone of the manager, from a backup
of its etcd, has the same uid. If the clone could write, it would delete what was created since the backup. So a leader
holds the claim under its process's name, and notes in it, at each renewal, the version that the manager's Lease has
reached.

A leader inherits the claim at once on two conditions. The claim's holder is its predecessor, and the noted version is
no newer than the last one that names this predecessor. Such a holder has stopped writing. If the manager was cloned, a
holder that leads the other manager has noted versions that this manager lacks. The claim of such a holder stands until
it has not been renewed for ABANDONED_SECONDS, or until the admin takes it from that holder.

leader_election.py decides who leads.
"""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adapter import names
from adapter.objects.unstructured import (
    MAX_ITEM_LENGTH,
    MAX_LEASE_TRANSITIONS,
    Raw,
    annotation,
    format_micro_time,
    meta,
    printable,
)

RENEW_SECONDS = 10.0
# Writes stop this long after the last renewal that succeeded. So three renewals may fail, as in a control plane's
# upgrade.
DEADLINE_SECONDS = 40.0
# A claim that was not renewed for this long may be taken. It is half as long again as the deadline, because one clock
# may run that much faster than another.
ABANDONED_SECONDS = 60
# The most that one pause between two denials counts; it is longer than a retry and a slow answer take. So a minute
# takes several denials, even if the process was stopped meanwhile.
_LONGEST_DENIAL_PAUSE = 15.0
# How long a process writes nothing after it took the claim from a holder that may still be writing. That holder learns
# at its next renewal that it lost the claim. If its renewals fail and its other writes do not, it writes until its
# deadline. The client's timeout ends its last request ten seconds later.
HANDED_OVER_SECONDS = DEADLINE_SECONDS + 10.0


@dataclass(frozen=True, slots=True)
class Leadership:
    """This process among the leaders of its manager."""

    name: str  # unique to this process
    predecessor: str = ""  # the last leader before it, if known
    predecessor_version: int = 0  # newest version of the manager's Lease that records it
    version: int = 0  # the Lease's current one


@dataclass(frozen=True, slots=True)
class Claimant:
    """One leader's view of one claim, in seconds of its own monotonic clock; wall-clock times are for people."""

    observed_version: str = ""
    unchanged_since: float = -math.inf
    may_write_from: float = -math.inf
    may_write_until: float = -math.inf  # exclusive
    denied_at: float | None = None  # the last denial, if nothing else happened since
    denied_seconds: float = 0.0  # how long denials followed one another


@dataclass(frozen=True, slots=True)
class ClaimWrite:
    """Create the claim, or patch it if its version is unchanged."""

    body: dict[str, Any]
    create: bool
    effective_after: float = 0.0  # seconds until the claim counts


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """Another process holds the claim: nothing may be written."""

    holder: str
    message: str  # a fragment


def may_write(claimant: Claimant, now: float) -> bool:
    """Whether a write may be sent now."""
    return claimant.may_write_from <= now < claimant.may_write_until


def with_observation(claimant: Claimant, claim: Raw | None, now: float) -> Claimant:
    """Record the claim as read at `now`; `claim` is None if it does not exist."""
    version = "" if claim is None else str(meta(claim).get("resourceVersion") or "")
    return (
        claimant
        if version == claimant.observed_version
        else replace(claimant, observed_version=version, unchanged_since=now)
    )


def with_request(claimant: Claimant, write: ClaimWrite, sent: float) -> Claimant:
    """After a takeover is sent, allow no writes until it counts.

    The delay runs from `sent`, because the takeover may succeed although its response is lost.
    """
    return replace(claimant, may_write_from=sent + write.effective_after) if write.effective_after else claimant


def with_grant(claimant: Claimant, sent: float) -> Claimant:
    """Record that a write of the claim succeeded; `sent` was read before that write was sent."""
    return replace(claimant, may_write_until=sent + DEADLINE_SECONDS, denied_at=None, denied_seconds=0.0)


def with_denial(claimant: Claimant, now: float) -> Claimant:
    """Record that the account was denied the claim at `now`. The time since the denial before it counts."""
    pause = 0.0 if claimant.denied_at is None else min(now - claimant.denied_at, _LONGEST_DENIAL_PAUSE)
    return replace(claimant, denied_at=now, denied_seconds=claimant.denied_seconds + pause)


def with_silence(claimant: Claimant) -> Claimant:
    """Record that a request got no answer: the time until the next denial does not count, and no denial is forgotten.

    If silence counted, two denials by an API server that starts twice would be enough. If it ended the denials, an
    account without the right would never be known behind a connection that comes and goes.
    """
    return replace(claimant, denied_at=None)


def without_denial(claimant: Claimant) -> Claimant:
    """Forget the denials, because the API server gave another answer."""
    return replace(claimant, denied_at=None, denied_seconds=0.0)


def is_denied_for_good(claimant: Claimant) -> bool:
    """Whether the denials last so long that the account has no right to the claim.

    An API server that has just started denies permitted requests for a moment, and so does one whose Role is being
    replaced. Another manager may hold the claim meanwhile, so the wait is as long as for an abandoned claim.
    """
    return claimant.denied_seconds >= ABANDONED_SECONDS


def without_claim(claimant: Claimant) -> Claimant:
    """Record that the claim is lost."""
    return replace(claimant, may_write_from=-math.inf, may_write_until=-math.inf)


def requeue_delay(claimant: Claimant, now: float) -> float:
    """Seconds until the holder must renew the claim, or until the claim begins to count."""
    return min(RENEW_SECONDS, claimant.may_write_from - now) if claimant.may_write_from > now else RENEW_SECONDS


def release_patch(claim: Raw, wall_time: datetime) -> dict[str, Any]:
    """The patch that releases the claim, so that the next process may write at once.

    This process must have stopped writing.

    `claim` must be unchanged since this process wrote it. The note of a takeover stays: the earlier holder may still be
    writing.
    """
    now = format_micro_time(wall_time)
    # The API server accepts no shorter duration.
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
    return {"metadata": dict(_version_precondition(claim)), "spec": spec}


def lease_name(manager_id: str, cluster: str) -> str:
    """The name of a manager's claim in a worker cluster."""
    return f"rayspan-{manager_id}-{cluster}"


def is_lease_name(name: str) -> bool:
    """Whether a Lease of this name is a claim, of any manager."""
    return re.match(r"rayspan-[0-9a-f]+-", name) is not None


def decide(
    claimant: Claimant,
    leadership: Leadership,
    claim_key: tuple[str, str],
    claim: Raw | None,
    taken_from: str,
    now: float,
    wall_time: datetime,
) -> ClaimWrite | ClaimConflict:
    """The write for a claim as just read, or why nothing may be written.

    `claim_key` is the manager's id and the WorkerCluster's name. `taken_from` is the holder from whom the admin takes
    the claim.
    """
    holder, where = holder_identity(claim), f"Lease {lease_name(*claim_key)} in its namespace {names.SYSTEM_NAMESPACE}"
    if claim is None and not may_write(claimant, now) and now - claimant.unchanged_since < ABANDONED_SECONDS:
        return ClaimConflict(
            "the holder before its deletion",
            f"its claim ({where}) was deleted, and its holder may not know that yet; nothing is written there until no "
            f"manager has created it again for {ABANDONED_SECONDS} s",
        )
    if holder == leadership.name:
        return _claim_write(leadership, claim_key, claim, wall_time, taken=now < claimant.may_write_from)
    # After this time, a holder from whom the claim was taken has stopped writing, too.
    if now - claimant.unchanged_since >= ABANDONED_SECONDS:
        return _claim_write(leadership, claim_key, claim, wall_time)
    # The process that took the claim may have ended since, so the claim itself notes that an earlier holder may still
    # be writing.
    taken = bool(annotation(claim or {}, names.TAKEN_OVER_ANNOTATION))
    if holder == "" or _is_inherited(leadership, claim):
        return _claim_write(
            leadership, claim_key, claim, wall_time, taken=taken, effective_after=HANDED_OVER_SECONDS if taken else 0.0
        )
    if holder == taken_from:
        return _claim_write(leadership, claim_key, claim, wall_time, taken=True, effective_after=HANDED_OVER_SECONDS)
    shown, since = (
        printable(holder, MAX_ITEM_LENGTH),
        printable(str(_lease_spec(claim).get("acquireTime") or "an unknown time")),
    )
    return ClaimConflict(
        shown,
        f"it has been held by {shown} since {since}, which may belong to a clone of this manager, or to the manager "
        f"that this one was cloned from ({where}); nothing is written there. It is taken over if it is not renewed for "
        f"{ABANDONED_SECONDS} s; to take it over now, run: kubectl annotate workercluster {claim_key[1]} --overwrite "
        f"{names.TAKE_OVER_ANNOTATION}={shlex.quote(shown)}",
    )


def _is_inherited(leadership: Leadership, claim: Raw | None) -> bool:
    """Whether the claim's holder is this leader's predecessor, and noted no version that this manager does not know."""
    version = annotation(claim or {}, names.LEASE_VERSION_ANNOTATION)
    is_number = version.isascii() and version.isdecimal() and len(version) < 20
    return (
        is_number
        and holder_identity(claim) == leadership.predecessor
        and int(version) <= leadership.predecessor_version
    )


def _claim_write(
    leadership: Leadership,
    claim_key: tuple[str, str],
    claim: Raw | None,
    wall_time: datetime,
    *,
    taken: bool = False,
    effective_after: float = 0.0,
) -> ClaimWrite:
    """The write that creates, takes or renews the claim for this leader.

    `taken`: the earlier holder may still be writing, which the claim notes for its next holder.
    """
    spec, now = _lease_spec(claim), format_micro_time(wall_time)
    is_holder = holder_identity(claim) == leadership.name
    transitions = spec.get("leaseTransitions")
    new_transitions = (transitions if isinstance(transitions, int) else 0) + (not is_holder and claim is not None)
    new_spec = {
        "holderIdentity": leadership.name,
        "leaseDurationSeconds": ABANDONED_SECONDS,
        "acquireTime": spec.get("acquireTime") or now if is_holder else now,
        "renewTime": now,
        "leaseTransitions": new_transitions if new_transitions <= MAX_LEASE_TRANSITIONS else 0,
    }
    notes: dict[str, dict[str, str | None]] = {"annotations": {names.LEASE_VERSION_ANNOTATION: str(leadership.version)}}
    if taken or annotation(claim or {}, names.TAKEN_OVER_ANNOTATION):
        notes["annotations"][names.TAKEN_OVER_ANNOTATION] = "true" if taken else None
    if claim is not None:
        return ClaimWrite(
            {"metadata": {**notes, **_version_precondition(claim)}, "spec": new_spec}, False, effective_after
        )
    metadata = {"name": lease_name(*claim_key), "namespace": names.SYSTEM_NAMESPACE, **notes}
    return ClaimWrite(
        {"apiVersion": names.LEASE_API_VERSION, "kind": "Lease", "metadata": metadata, "spec": new_spec}, True
    )


def _version_precondition(claim: Raw) -> Mapping[str, object]:
    return {key: meta(claim).get(key) for key in ("uid", "resourceVersion")}


def _lease_spec(claim: Raw | None) -> Raw:
    spec = (claim or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def holder_identity(claim: Raw | None) -> str:
    return str(_lease_spec(claim).get("holderIdentity") or "")
