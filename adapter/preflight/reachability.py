"""Do the pods of a worker cluster reach those of the others? The WorkerCluster's condition, and what a policy makes of it.

A preflight that could not try says nothing, so that a wrong image or a missing right takes no cluster out of use that works.
A policy's requireReachable would be missed by admins whose clusters come and go under networks of others, for a gang that is placed where
its pods cannot reach the head hangs until somebody looks; triedSource by those who give a WorkerCluster another kubeconfig, as a
condition found elsewhere would else open the new one unseen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, condition, format_time, key_of, meta, updated_condition
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, Finding

_MAX_MESSAGE_LENGTH = 2000  # characters of a condition's message: with many clusters, the first that fail are enough


@dataclass(frozen=True, slots=True)
class Reachability:
    """What is to be told of one worker cluster."""

    reached: bool
    reason: str
    message: str


def cluster_reachability(
    name: str, clusters: Mapping[str, ClusterFacts], findings: Sequence[Finding]
) -> Reachability | None:
    """Say whether workers in that cluster could work with the head and with each other, None if that was not tried.

    A way between two worker clusters that does not work counts against both, unless one of them is cut off from the manager as well:
    then it counts against that one only.
    """
    broken = [finding for finding in findings if finding.reason]
    cut = {cluster for finding in broken if MANAGER in finding.clusters for cluster in finding.clusters} - {MANAGER}
    mine = [finding for finding in broken if name in finding.clusters]
    counted = mine if name in cut else [finding for finding in mine if not cut & {*finding.clusters}]
    if counted:
        first = min(counted, key=lambda finding: MANAGER not in finding.clusters)
        return Reachability(False, first.reason, " ".join(finding.message for finding in counted)[:_MAX_MESSAGE_LENGTH])
    if not _reach_each_other(clusters[name], clusters[MANAGER]):
        return None
    others = [
        side
        for side in clusters.values()
        if side.name not in (name, MANAGER) and _reach_each_other(clusters[name], side)
    ]
    more = f", and so do those of {', '.join(side.name for side in others)}" if others else ""
    trip = clusters[name].paths[MANAGER]
    speed = f"{trip.milliseconds} ms there and back, {trip.megabits} Mbit/s"
    text = f"Pods there and in the manager reach each other ({speed}){more}."[:_MAX_MESSAGE_LENGTH]
    return Reachability(True, names.ConditionReason.REACHABLE, text)


def _reach_each_other(first: ClusterFacts, second: ClusterFacts) -> bool:
    trips = first.paths.get(second.name), second.paths.get(first.name)
    return all(trip is not None and not trip.error for trip in trips)


def status_patch(cluster: Raw, result: Reachability, now: datetime) -> dict[str, Any]:
    """The WorkerCluster's condition as an apply patch of its status: it names no other, and so takes none away."""
    wanted = {
        "type": names.REACHABLE,
        "status": str(result.reached),
        "reason": result.reason,
        "message": result.message,
        "observedGeneration": meta(cluster).get("generation"),
    }
    entry = updated_condition(condition(cluster, names.REACHABLE), wanted, format_time(now))
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKER_CLUSTER_KIND,
        "metadata": {"name": key_of(cluster)[1], "uid": meta(cluster).get("uid")},
        "status": {"conditions": [entry], "triedSource": _login_source(cluster)},
    }


def unproven_reason(cluster: Raw) -> str:
    """Why a policy that requires reachable clusters passes one over, a part of a sentence; empty when it does not.

    Not by the generation: pods were tried in the cluster that `spec.source` names, and nothing else in the spec changes where
    that is. A cordon and its end would else take each cluster out of use.
    """
    found = condition(cluster, names.REACHABLE)
    tried = (cluster.get("status") or {}).get("triedSource") or ""
    if found.get("status") == "True" and not tried:
        return "the last preflight did not note which cluster it tried: run `kubectl rayspan preflight`"
    if found.get("status") == "True" and tried != _login_source(cluster):
        return f"its spec.source has changed since the last preflight, which tried {tried}: run `kubectl rayspan preflight`"
    if found.get("status") == "True":
        return ""
    if not found:
        return "no preflight has tried it, and the policy requires that: run `kubectl rayspan preflight`"
    return f"the last preflight found it not reachable ({found.get('reason')}): mend that, and run `kubectl rayspan preflight`"


def cut_off_reason(cluster: Raw) -> str:
    """Why workers there would not reach the others, as the last preflight of the cluster that is meant now found; empty when it found
    no such thing, or nobody has tried. A sentence."""
    found = condition(cluster, names.REACHABLE)
    if found.get("status") != "False" or (cluster.get("status") or {}).get("triedSource") != _login_source(cluster):
        return ""
    return f"The last preflight found: {found.get('message')} Mend that, and run `kubectl rayspan preflight`."


def _login_source(cluster: Raw) -> str:
    """Where the kubeconfig is from, which says which cluster is meant."""
    source = (cluster.get("spec") or {}).get("source") or {}
    lent, secret = source.get("multiKueueClusterRef"), (source.get("kubeConfig") or {}).get("secretRef") or {}
    if profile := source.get("clusterProfileRef"):
        return f"ClusterProfile {profile.get('namespace') or names.SYSTEM_NAMESPACE}/{profile.get('name')}"
    return f"MultiKueueCluster {lent.get('name')}" if lent else f"Secret {secret.get('name')}"
