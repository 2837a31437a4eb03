"""Whose is a worker cluster: which leader of which manager may write there? A Lease in the worker cluster says so.

A manager is known there by the uid of its kube-system, and a clone of it, from a backup of its etcd, has the same one: to the clone
all that was made since the backup stands for nothing, and would be deleted. What the two do not share is the future. So whoever leads
holds a claim under its own process's name, and notes with each renewal how far the manager's Lease had come. A claim whose holder led
this manager just before, and which was renewed no later than this manager's own Lease tells of that holder, is inherited at once: who
held it has stopped writing before anybody else could lead. A holder that lived on in another manager's history notes versions that
are not in this one; its claim is respected until it was not renewed for long, or until the admin says from whom it is taken.

Times are of one's own monotonic clock; the wall clock is for people, as in leader_election.py. This decides nothing of who leads.
"""

import math
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
# Three renewals may fail, as while a control plane is upgraded, before nothing more is written.
DEADLINE_SECONDS = 40.0
# Half as long again, as between the deadline and the duration of a Lease: one clock may run that much faster than another.
ABANDONED_SECONDS = 60
# A holder learns at its next renewal that it holds the claim no more. But its renewals may fail, for a busy API server say, while its
# writes do not: then it writes until its deadline, and what it sent last is over after the client's ten seconds.
HANDED_OVER_SECONDS = DEADLINE_SECONDS + 10.0


@dataclass(frozen=True, slots=True)
class Leadership:
    """This process among those who lead its manager, by the manager's Lease."""

    name: str  # no other process has it
    predecessor: str = ""  # who led last before it, as far as it knows
    predecessor_version: int = 0  # the newest version of the Lease that tells of that one
    version: int = 0  # that of now


@dataclass(frozen=True, slots=True)
class Claimant:
    """One leader's view of one claim; all times are seconds of its own monotonic clock."""

    observed_version: str = ""  # version of the claim
    unchanged_since: float = -math.inf  # since when that has not changed
    may_write_from: float = -math.inf  # it may not write before this
    may_write_until: float = -math.inf  # nor from this on


@dataclass(frozen=True, slots=True)
class ClaimWrite:
    """Create the claim, or patch it: a patch is refused if it is another version by now. `after`: seconds until it counts."""

    body: dict[str, Any]
    create: bool
    effective_after: float = 0.0


@dataclass(frozen=True, slots=True)
class ClaimConflict:
    """Another one holds it: nothing may be written."""

    holder: str
    message: str  # a part of a sentence


def may_write(claimant: Claimant, now: float) -> bool:
    """Whether a write may be sent now."""
    return claimant.may_write_from <= now < claimant.may_write_until


def with_observation(claimant: Claimant, claim: Raw | None, now: float) -> Claimant:
    """The claimant after a look at the claim (None: there is none); `now` is when the answer was there."""
    version = "" if claim is None else str(meta(claim).get("resourceVersion") or "")
    return (
        claimant
        if version == claimant.observed_version
        else replace(claimant, observed_version=version, unchanged_since=now)
    )


def with_request(claimant: Claimant, write: ClaimWrite, sent: float) -> Claimant:
    """The claimant whose Put leaves at `sent`: it may be granted and its answer be lost, and then its own name stands there."""
    return replace(claimant, may_write_from=sent + write.effective_after) if write.effective_after else claimant


def with_grant(claimant: Claimant, sent: float) -> Claimant:
    """The claimant after its Put was granted; `sent` is before it left."""
    return replace(claimant, may_write_until=sent + DEADLINE_SECONDS)


def without_claim(claimant: Claimant) -> Claimant:
    """The claimant that holds the claim no more."""
    return replace(claimant, may_write_from=-math.inf, may_write_until=-math.inf)


def requeue_delay(claimant: Claimant, now: float) -> float:
    """In how many seconds who was granted it looks again: to renew it, or when it begins to count."""
    return min(RENEW_SECONDS, claimant.may_write_from - now) if claimant.may_write_from > now else RENEW_SECONDS


def release_patch(claim: Raw, wall_time: datetime) -> dict[str, Any]:
    """The patch by which a process that has stopped writing lets the next one begin at once; `claim` is as it put it last, and nobody
    may have put it anew since. Whom it was taken from has its time all the same: that note stays."""
    now = format_micro_time(wall_time)
    # A second is the least that an API server takes.
    fresh = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now}
    return {"metadata": dict(_version_precondition(claim)), "spec": fresh}


def lease_name(manager_id: str, cluster: str) -> str:
    """What the claim of a manager to a worker cluster is called there."""
    return f"rayspan-{manager_id}-{cluster}"


def decide(
    claimant: Claimant,
    leadership: Leadership,
    claim_key: tuple[str, str],
    claim: Raw | None,
    taken_from: str,
    now: float,
    wall_time: datetime,
) -> ClaimWrite | ClaimConflict:
    """What to do about a claim as it was just seen.

    `which`: the manager's id and the WorkerCluster's name; `taken_from`: the holder from whom the admin takes it.
    """
    holder, where = _holder_identity(claim), f"Lease {lease_name(*claim_key)} in its namespace {names.SYSTEM_NAMESPACE}"
    if claim is None and not may_write(claimant, now) and now - claimant.unchanged_since < ABANDONED_SECONDS:
        return ClaimConflict(
            "who held it when it was deleted",
            f"its claim ({where}) was deleted, which whoever held it may not know yet; nothing is written there until "
            f"nobody has made it anew for {ABANDONED_SECONDS} s",
        )
    if holder == leadership.name:
        return _claim_write(leadership, claim_key, claim, wall_time, taken=now < claimant.may_write_from)
    if now - claimant.unchanged_since >= ABANDONED_SECONDS:  # whoever it was taken from has stopped, too
        return _claim_write(leadership, claim_key, claim, wall_time)
    taken = bool(annotation(claim or {}, names.TAKEN_OVER_ANNOTATION))  # and who did so may have ended since
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
        f"it is held by {shown} since {since}, which may be of a clone of this manager, or of the manager that this one is a clone of "
        f"({where}); nothing is written there. It is taken over when it was not "
        f"renewed for {ABANDONED_SECONDS} s; or, if that one is to stop, say so: kubectl annotate workercluster {claim_key[1]} --overwrite "
        f"{names.TAKE_OVER_ANNOTATION}={shlex.quote(shown)}",
    )


def _is_inherited(leadership: Leadership, claim: Raw | None) -> bool:
    """Whether its holder led this manager just before, and did nothing since that this manager does not know of."""
    noted = annotation(claim or {}, names.LEASE_VERSION_ANNOTATION)
    known = noted.isascii() and noted.isdecimal() and len(noted) < 20
    return known and _holder_identity(claim) == leadership.predecessor and int(noted) <= leadership.predecessor_version


def _claim_write(
    leadership: Leadership,
    claim_key: tuple[str, str],
    claim: Raw | None,
    wall_time: datetime,
    *,
    taken: bool = False,
    effective_after: float = 0.0,
) -> ClaimWrite:
    """`taken`: whom it was taken from may write yet, which the claim says to whoever inherits it."""
    spec, now = _lease_spec(claim), format_micro_time(wall_time)
    mine = _holder_identity(claim) == leadership.name
    before = spec.get("leaseTransitions")
    changes = (before if isinstance(before, int) else 0) + (not mine and claim is not None)
    fresh = {
        "holderIdentity": leadership.name,
        "leaseDurationSeconds": ABANDONED_SECONDS,
        "acquireTime": spec.get("acquireTime") or now if mine else now,
        "renewTime": now,
        "leaseTransitions": changes if changes <= MAX_LEASE_TRANSITIONS else 0,
    }
    noted: dict[str, dict[str, str | None]] = {"annotations": {names.LEASE_VERSION_ANNOTATION: str(leadership.version)}}
    if taken or annotation(claim or {}, names.TAKEN_OVER_ANNOTATION):
        noted["annotations"][names.TAKEN_OVER_ANNOTATION] = "true" if taken else None
    if claim is not None:
        return ClaimWrite(
            {"metadata": {**noted, **_version_precondition(claim)}, "spec": fresh}, False, effective_after
        )
    metadata = {"name": lease_name(*claim_key), "namespace": names.SYSTEM_NAMESPACE, **noted}
    return ClaimWrite(
        {"apiVersion": names.LEASE_API_VERSION, "kind": "Lease", "metadata": metadata, "spec": fresh}, True
    )


def _version_precondition(claim: Raw) -> Mapping[str, object]:
    return {key: meta(claim).get(key) for key in ("uid", "resourceVersion")}


def _lease_spec(claim: Raw | None) -> Raw:
    found = (claim or {}).get("spec")
    return found if isinstance(found, dict) else {}


def _holder_identity(claim: Raw | None) -> str:
    return str(_lease_spec(claim).get("holderIdentity") or "")
