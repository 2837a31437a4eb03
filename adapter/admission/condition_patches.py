"""Are the objects that admins write in order: the conditions of AdmissionCheck, WorkerCluster and DispatchPolicy, as patches.

A check is Active as long as its configuration makes sense. A worker cluster that cannot be reached does not change
that: an inactive check stops the whole ClusterQueue, local jobs included
(docs/upstream.md, "An inactive check stops its queue").
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from adapter import names
from adapter.admission.cluster_identity import recorded_uid
from adapter.admission.policy import PolicyObjects, policy_of_check
from adapter.admission.readiness import Readiness, cluster_readiness, no_cluster_message, policy_readiness
from adapter.objects import specs
from adapter.objects.admissioncheck import read_check
from adapter.objects.unstructured import (
    Raw,
    condition,
    condition_true_since,
    format_time,
    meta,
    truncate,
    updated_condition,
)

StatusPatch = dict[str, Any]
# A link that comes and goes is lost for as long as it does so: the first loss counts until the cluster was seen for this long.
STEADY_AFTER = timedelta(seconds=30)
REASONS = (
    names.ConditionReason.CONNECTED,
    names.ConditionReason.UNREACHABLE,
    names.ConditionReason.BAD_CONFIGURATION,
    names.ConditionReason.HEADS_NOT_MIRRORED,
    names.ConditionReason.IDENTITY_MISMATCH,
    names.ConditionReason.DUPLICATE_CLUSTER,
    names.ConditionReason.CLAIM_CONFLICT,
    names.ConditionReason.NOT_CLAIMED,
)
"""Reasons of a WorkerCluster's condition Connected."""


def check_condition(
    check: Raw, policy_objects: PolicyObjects, gate: str, layout: Sequence[str], now: datetime
) -> StatusPatch | None:
    """The status patch that tells whether an AdmissionCheck can be served, None when it is told already.

    `gate` says why worker pods would not be held, `layout` what cannot work in the queues that list the check.
    """
    record = read_check(check)
    try:
        chosen = policy_of_check(record, policy_objects)
    except specs.InvalidSpec as error:
        return _condition_patch(check, names.ACTIVE, "False", names.ConditionReason.BAD_PARAMETERS, str(error), now)
    if gate:
        # Still Active: jobs that stay local pass this queue too. No gang turns Ready meanwhile.
        return _condition_patch(check, names.ACTIVE, "True", names.ConditionReason.GATE_MISSING, gate, now)
    if not chosen.clusters:
        # Active, too: a cluster that is labelled later must not have to bring a stopped queue back to life.
        return _condition_patch(
            check, names.ACTIVE, "True", names.ConditionReason.NO_CLUSTER, no_cluster_message(record.policy), now
        )
    if layout:
        return _condition_patch(
            check, names.ACTIVE, "True", names.ConditionReason.INVALID_QUEUE_LAYOUT, " ".join(layout), now
        )
    text = f"Dispatches Ray workers to {', '.join(chosen.clusters)}."
    return _condition_patch(check, names.ACTIVE, "True", names.ConditionReason.READY, text, now)


def cluster_status(
    cluster: Raw,
    problem: str,
    reason: str,
    steady: bool,
    workers: int,
    now: datetime,
    *,
    lack: str = "",
    uid: str = "",
    unclaimed: str = "",
    expiring: str = "",
    unguarded: bool = False,
    cut_off: str = "",
) -> StatusPatch | None:
    """The status patch of a WorkerCluster: `cluster_condition`, whether it is ready, for how many workers quota is held there, and who
    it is, as far as that is known now (`uid`). Who it is, is written over nothing that was not read. `unguarded`: work goes on there
    although it is `unclaimed`."""
    told = cluster_condition(cluster, problem, reason, steady, now, lack=lack, unclaimed=unclaimed, expiring=expiring)
    after = {**cluster, "status": {**(cluster.get("status") or {}), **_status_fields(told)}}
    ready = _readiness_patch(after, cluster_readiness(after, cut_off, unguarded=unguarded, expiring=expiring), now)
    both = {**ready, "status": {**_status_fields(told), **_status_fields(ready)}} if ready else told
    patch = _with_status_field(cluster, both, "workers", workers)
    if uid in ("", recorded_uid(cluster)):
        return patch
    precondition = {key: meta(cluster).get(key) for key in ("uid", "resourceVersion")}
    return {"metadata": precondition, "status": {**(patch or {"status": {}})["status"], "clusterUID": uid}}


def policy_status(policy: Raw, policy_objects: PolicyObjects, now: datetime) -> StatusPatch | None:
    """The status patch that tells whether jobs can be planned by a DispatchPolicy, None when it is told already."""
    return _readiness_patch(policy, policy_readiness(policy, policy_objects), now)


def cluster_condition(
    cluster: Raw,
    problem: str,
    reason: str,
    steady: bool,
    now: datetime,
    *,
    lack: str = "",
    unclaimed: str = "",
    expiring: str = "",
) -> StatusPatch | None:
    """The status patch that tells whether a WorkerCluster is connected, and since when it was lost; None when it is told.

    The first loss stays while the cluster comes and goes: it is over when the cluster was seen for long enough (`steady`), also where
    that was said and nobody was there to take note: between two leaders, or while there was none.
    `lack` is what keeps new workers from one that is seen, a sentence; `unclaimed` why no claim to it is held, a part of one;
    `expiring` that its token ends soon, a sentence.
    """
    if not problem:
        well = "Its API server answers and its queues are read."
        seen = lack or (f"{well} But {unclaimed}." if unclaimed else well)
        text = f"{seen} {expiring}".rstrip()
        claim = names.ConditionReason.NOT_CLAIMED if unclaimed else names.ConditionReason.CONNECTED
        because = names.ConditionReason.HEADS_NOT_MIRRORED if lack else claim
        patch = _condition_patch(cluster, names.CONNECTED, "True", because, text, now)
        return _with_status_field(cluster, patch, "lostSince", None) if steady else patch
    silent = reason == names.ConditionReason.UNREACHABLE
    patch = _condition_patch(cluster, names.CONNECTED, "Unknown" if silent else "False", reason, problem, now)
    first = None if _was_connected(cluster, now) else (cluster.get("status") or {}).get("lostSince")
    return _with_status_field(cluster, patch, "lostSince", first or format_time(now))


def _was_connected(cluster: Raw, now: datetime) -> bool:
    """Whether it has counted as connected for so long that an earlier loss is over."""
    since = condition_true_since(cluster, names.CONNECTED)
    return since is not None and now - since >= STEADY_AFTER


def _with_status_field(raw: Raw, patch: StatusPatch | None, field: str, value: object) -> StatusPatch | None:
    """The patch with one more field of the status, if that is to change."""
    if (raw.get("status") or {}).get(field) == value:
        return patch
    patch = patch or {"metadata": {"uid": meta(raw).get("uid")}, "status": {}}
    return {**patch, "status": {**patch["status"], field: value}}


def _status_fields(patch: StatusPatch | None) -> Raw:
    """What of the status a patch changes."""
    return patch["status"] if patch else {}


def _readiness_patch(raw: Raw, readiness: Readiness | None, now: datetime) -> StatusPatch | None:
    """The patch with the condition Ready, and beside it which generation it is about.

    The latter goes with the condition, which has it too, and is not compared by itself: an API server with an older CRD drops it, and
    would be told of it at every look.
    """
    if readiness is None:
        return None
    patch = _condition_patch(raw, names.READY, readiness.status, readiness.reason, readiness.message, now)
    if patch is None:
        return None
    return {**patch, "status": {**patch["status"], "observedGeneration": meta(raw).get("generation")}}


def _condition_patch(raw: Raw, kind: str, status: str, reason: str, message: str, now: datetime) -> StatusPatch | None:
    before, message = condition(raw, kind), truncate(message)  # else a hundred queues' problems would never be told
    generation = meta(raw).get("generation")
    wanted = {"status": status, "reason": reason, "message": message, "observedGeneration": generation}
    if all(before.get(key) == found for key, found in wanted.items()):
        return None
    entry = updated_condition(before, {"type": kind, **wanted}, format_time(now))
    others = [c for c in (raw.get("status") or {}).get("conditions") or () if c.get("type") != kind]
    # The list is written whole, so not over a condition of somebody else's that came since it was read.
    precondition = {key: meta(raw).get(key) for key in ("uid", "resourceVersion")}
    return {"metadata": precondition, "status": {"conditions": [*others, entry]}}
