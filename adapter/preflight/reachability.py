"""The WorkerCluster's condition Reachable: built from the findings of a preflight, and read for a policy.

A preflight that could not probe a cluster leaves its condition alone, so that a wrong image or a missing right does not
take a working cluster out of use. A policy's requireReachable is for fleets whose networks change: a gang whose pods
cannot reach the head hangs until an administrator notices. status.triedSource is for a WorkerCluster that gets another
kubeconfig: the condition of the old cluster must not count for the new cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, condition, format_time, key_of, meta, printable, updated_condition
from adapter.preflight.preflight_facts import MANAGER, ClusterFacts, Finding

_MAX_MESSAGE_LENGTH = 2000  # characters of a condition's message


@dataclass(frozen=True, slots=True)
class Reachability:
    """Status, reason and message of a worker cluster's condition Reachable."""

    reached: bool
    reason: str
    message: str


def cluster_reachability(
    name: str, clusters: Mapping[str, ClusterFacts], findings: Sequence[Finding]
) -> Reachability | None:
    """Whether workers in a cluster could work with the head and with each other; None if the paths were not probed.

    A broken path between two worker clusters counts against both clusters. But if one of the two has no path to the
    manager, the broken path counts against that cluster only.
    """
    broken = [finding for finding in findings if finding.reason]
    cut = {cluster for finding in broken if MANAGER in finding.clusters for cluster in finding.clusters} - {MANAGER}
    mine = [finding for finding in broken if name in finding.clusters]
    counted = mine if name in cut else [finding for finding in mine if not cut & {*finding.clusters}]
    if counted:
        first = min(counted, key=lambda finding: MANAGER not in finding.clusters)
        return Reachability(False, first.reason, _condition_message(" ".join(finding.message for finding in counted)))
    if address := clusters[name].relay_address:
        return None if clusters[name].relay_error is None else _by_relay(address)
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
    text = f"Pods there and in the manager reach each other ({speed}){more}."
    return Reachability(True, names.ConditionReason.REACHABLE, _condition_message(text))


def _by_relay(address: str) -> Reachability:
    text = f"Pods there connect to {address}, the relay's address in spec.network. What answers there was not tested."
    return Reachability(True, names.ConditionReason.REACHABLE, _condition_message(text))


def _condition_message(text: str) -> str:
    return printable(text, _MAX_MESSAGE_LENGTH)


def _reach_each_other(first: ClusterFacts, second: ClusterFacts) -> bool:
    trips = first.paths.get(second.name), second.paths.get(first.name)
    return all(trip is not None and not trip.error for trip in trips)


def status_patch(cluster: Raw, result: Reachability, now: datetime) -> dict[str, Any]:
    """The apply patch of the WorkerCluster's status with this condition; it leaves other conditions alone."""
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
        "status": {"conditions": [entry], "triedSource": _tried_source(cluster)},
    }


def unproven_reason(cluster: Raw) -> str:
    """Why a policy that requires reachable clusters skips this cluster, a fragment; empty if it does not skip it.

    `spec.source` and the relay's address are compared, which alone decide what was probed. If the generation were
    compared, each cordon and its end would take the cluster out of use.
    """
    reachable, source = condition(cluster, names.REACHABLE), _tried_source(cluster)
    tried = (cluster.get("status") or {}).get("triedSource") or ""
    if reachable.get("status") == "True" and not tried:
        return "the last preflight did not record which cluster it tested: run `kubectl rayspan preflight`"
    if reachable.get("status") == "True" and tried != source:
        return f"the last preflight tested {tried} and not {source}: run `kubectl rayspan preflight`"
    if reachable.get("status") == "True":
        return ""
    if not reachable:
        return "no preflight has tested it, and the policy requires that: run `kubectl rayspan preflight`"
    return (
        f"the last preflight found it unreachable ({reachable.get('reason')}): fix that, and run "
        "`kubectl rayspan preflight`"
    )


def cut_off_reason(cluster: Raw) -> str:
    """A sentence why workers in a cluster do not reach other workers or the head, by the last preflight.

    Empty if that preflight found no broken path, or probed another `spec.source` or `spec.network`.
    """
    reachable = condition(cluster, names.REACHABLE)
    if reachable.get("status") != "False" or (cluster.get("status") or {}).get("triedSource") != _tried_source(cluster):
        return ""
    return f"The last preflight found: {reachable.get('message')} Fix that, and run `kubectl rayspan preflight`."


def _tried_source(cluster: Raw) -> str:
    """What a preflight of the cluster tries: the cluster, and the relay if its pods reach others by it."""
    network = (cluster.get("spec") or {}).get("network") or {}
    by_relay = f" by the relay at {network.get('address')}" if network.get("mode") == "Relay" else ""
    return f"{_login_source(cluster)}{by_relay}"


def _login_source(cluster: Raw) -> str:
    """The object that the kubeconfig comes from, which identifies the cluster."""
    source = (cluster.get("spec") or {}).get("source") or {}
    lent, secret = source.get("multiKueueClusterRef"), (source.get("kubeConfig") or {}).get("secretRef") or {}
    if profile := source.get("clusterProfileRef"):
        return f"ClusterProfile {profile.get('namespace') or names.SYSTEM_NAMESPACE}/{profile.get('name')}"
    return f"MultiKueueCluster {lent.get('name')}" if lent else f"Secret {secret.get('name')}"
