"""Builds the patches of the conditions of AdmissionChecks, WorkerClusters and DispatchPolicies.

A check stays Active while a worker cluster is unreachable: an inactive check stops the whole ClusterQueue, local jobs
included (docs/upstream.md, "An inactive check stops its queue"). A function returns None when nothing changes.
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
from adapter.objects.relay_currency import RelayCurrency
from adapter.objects.unstructured import (
    Raw,
    condition,
    condition_true_since,
    format_time,
    meta,
    parse_time,
    truncate,
    updated_condition,
)

StatusPatch = dict[str, Any]
# A flapping connection counts as lost until the cluster was reachable for this long.
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
    check: Raw,
    policy_objects: PolicyObjects,
    gate: str,
    layout: Sequence[str],
    now: datetime,
    *,
    record_problem: str = "",
    outdated: str = "",
) -> StatusPatch | None:
    """The status patch of an AdmissionCheck.

    `gate` says why worker pods would not be gated, `record_problem` why no Placement can be written, `layout` what
    cannot work in the check's queues, and `outdated` which CRDs are older than the controller.
    """
    record = read_check(check)
    try:
        resolved_policy = policy_of_check(record, policy_objects)
    except specs.InvalidSpec as error:
        return _condition_patch(check, names.ACTIVE, "False", names.ConditionReason.BAD_PARAMETERS, str(error), now)
    if gate:
        # The check stays Active, because local jobs use its queues too. Meanwhile it does not become Ready on any
        # Workload.
        return _condition_patch(check, names.ACTIVE, "True", names.ConditionReason.GATE_MISSING, gate, now)
    if record_problem:
        return _condition_patch(check, names.ACTIVE, "True", names.ConditionReason.CRD_OUTDATED, record_problem, now)
    if not resolved_policy.clusters:
        # Here, too, the check stays Active: if the queue stopped, it would have to be restarted after a cluster is
        # labelled.
        return _condition_patch(
            check, names.ACTIVE, "True", names.ConditionReason.NO_CLUSTER, no_cluster_message(record.policy), now
        )
    if layout:
        return _condition_patch(
            check, names.ACTIVE, "True", names.ConditionReason.INVALID_QUEUE_LAYOUT, " ".join(layout), now
        )
    text = " ".join(filter(None, (f"Dispatches Ray workers to {', '.join(resolved_policy.clusters)}.", outdated)))
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
    currency: RelayCurrency | None = None,
) -> StatusPatch | None:
    """The status patch of a WorkerCluster: its conditions, workers with quota there, and its `uid` if known.

    The uid is written only over the version that was read. `unguarded`: workers are sent there although the cluster is
    `unclaimed`. Without `currency` the condition RelayCurrent stays as it is.
    """
    connected = cluster_condition(
        cluster, problem, reason, steady, now, lack=lack, unclaimed=unclaimed, expiring=expiring
    )
    after = _after(cluster, connected)
    ready = _readiness_patch(after, cluster_readiness(after, cut_off, unguarded=unguarded, expiring=expiring), now)
    conditions = _joined(_joined(connected, ready), _currency_patch(_after(after, ready), currency, now))
    patch = _with_status_field(cluster, conditions, "workers", workers)
    if uid in ("", recorded_uid(cluster)):
        return patch
    precondition = {key: meta(cluster).get(key) for key in ("uid", "resourceVersion")}
    return {"metadata": precondition, "status": {**(patch or {"status": {}})["status"], "clusterUID": uid}}


def _currency_patch(cluster: Raw, currency: RelayCurrency | None, now: datetime) -> StatusPatch | None:
    if currency is None:
        return None
    status = str(currency.is_current)
    return _condition_patch(cluster, names.RELAY_CURRENT, status, currency.reason, currency.message, now)


def _after(raw: Raw, patch: StatusPatch | None) -> Raw:
    return {**raw, "status": {**(raw.get("status") or {}), **_status_fields(patch)}}


def _joined(first: StatusPatch | None, second: StatusPatch | None) -> StatusPatch | None:
    """Both patches as one; the second was made of what the first leaves."""
    return {**second, "status": {**_status_fields(first), **_status_fields(second)}} if second else first


def policy_status(policy: Raw, policy_objects: PolicyObjects, now: datetime) -> StatusPatch | None:
    """The status patch of a DispatchPolicy."""
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
    """The status patch with a WorkerCluster's Connected and `lostSince`.

    `lostSince` is the time of the first loss while the connection flaps. That loss is over once the cluster has been
    reachable for long enough (`steady`), also if no leader recorded its end. `lack` is a sentence why a reachable
    cluster gets no new workers, `unclaimed` a fragment why no claim is held, `expiring` a sentence that its token ends
    soon.
    """
    if not problem:
        healthy = "Its API server answers and its queues are read."
        text_without_expiry = lack or (f"{healthy} But {unclaimed}." if unclaimed else healthy)
        text = f"{text_without_expiry} {expiring}".rstrip()
        claim_reason = names.ConditionReason.NOT_CLAIMED if unclaimed else names.ConditionReason.CONNECTED
        connected_reason = names.ConditionReason.HEADS_NOT_MIRRORED if lack else claim_reason
        patch = _condition_patch(cluster, names.CONNECTED, "True", connected_reason, text, now)
        return _with_status_field(cluster, patch, "lostSince", None) if steady else patch
    unreachable = reason == names.ConditionReason.UNREACHABLE
    patch = _condition_patch(cluster, names.CONNECTED, "Unknown" if unreachable else "False", reason, problem, now)
    return _with_status_field(cluster, patch, "lostSince", _lost_since(cluster, now))


def _lost_since(cluster: Raw, now: datetime) -> str:
    """Since when the cluster is lost. A recorded time in the future counts as now: a clock was put back.

    Otherwise workers would count as lost too late.
    """
    recorded = (cluster.get("status") or {}).get("lostSince")
    since = None if _was_connected(cluster, now) else parse_time(recorded)
    return format_time(now) if since is None or since > now else str(recorded)


def _was_connected(cluster: Raw, now: datetime) -> bool:
    """Whether the cluster has been connected for so long that an earlier loss is over."""
    since = condition_true_since(cluster, names.CONNECTED)
    return since is not None and now - since >= STEADY_AFTER


def _with_status_field(raw: Raw, patch: StatusPatch | None, field: str, value: object) -> StatusPatch | None:
    if (raw.get("status") or {}).get(field) == value:
        return patch
    patch = patch or {"metadata": {"uid": meta(raw).get("uid")}, "status": {}}
    return {**patch, "status": {**patch["status"], field: value}}


def _status_fields(patch: StatusPatch | None) -> Raw:
    return patch["status"] if patch else {}


def _readiness_patch(raw: Raw, readiness: Readiness | None, now: datetime) -> StatusPatch | None:
    """The patch of Ready and `observedGeneration`.

    `observedGeneration` itself is not compared: an API server with an older CRD drops it, so each reconcile would write
    it again.
    """
    if readiness is None:
        return None
    patch = _condition_patch(raw, names.READY, readiness.status, readiness.reason, readiness.message, now)
    if patch is None:
        return None
    return {**patch, "status": {**patch["status"], "observedGeneration": meta(raw).get("generation")}}


def _condition_patch(raw: Raw, kind: str, status: str, reason: str, message: str, now: datetime) -> StatusPatch | None:
    # A message is truncated, because a long one, as for the problems of a hundred queues, could not be written.
    before, message = condition(raw, kind), truncate(message)
    generation = meta(raw).get("generation")
    wanted = {"status": status, "reason": reason, "message": message, "observedGeneration": generation}
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    entry = updated_condition(before, {"type": kind, **wanted}, format_time(now))
    others = [c for c in (raw.get("status") or {}).get("conditions") or () if c.get("type") != kind]
    # The patch replaces the whole list: the precondition protects conditions that other clients have added since.
    precondition = {key: meta(raw).get(key) for key in ("uid", "resourceVersion")}
    return {"metadata": precondition, "status": {"conditions": [*others, entry]}}
