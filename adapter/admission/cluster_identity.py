"""Is a worker cluster the one that it was? What is on record of it, against the uid of its kube-system that was found now.

A name, an address and a kubeconfig can come to lead to another cluster: a Secret with the wrong content, a DNS name that moved, a
cluster that was built anew. The empty lists of that one say nothing of what runs in the first one. The uid of the namespace
kube-system is a cluster's own for as long as its etcd lives. One that was never seen is believed, for there is nothing to compare
it with. Who asks for the uid, and what becomes of a connection, is for shell/clusters.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.unstructured import Raw, annotation, key_of, meta, printable

_MAX_UID_LENGTH = 64  # characters of a uid that are told; one has 36


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """What is on record of a WorkerCluster, as of one moment."""

    name: str
    uid: str = ""  # status.clusterUID; empty: it was never seen
    accepted_uid: str = ""  # the uid that its admin takes it to have
    other_cluster_by_uid: Mapping[str, str] = field(
        default_factory=dict
    )  # uid -> another WorkerCluster, whose cluster that is
    claim_taken_from: str = ""  # the holder from whom its admin has the claim taken (cluster_claim.py)


@dataclass(frozen=True, slots=True)
class IdentityConflict:
    """Why what answers is not taken for the cluster: a condition's reason, and a part of a sentence."""

    reason: str
    message: str


def identity_record(cluster: Raw, clusters: Iterable[Raw]) -> IdentityRecord:
    """What is on record of one of the WorkerClusters."""
    name, uid = key_of(cluster)[1], recorded_uid(cluster)
    taken = {}
    for other in sorted(clusters, key=_registration_order, reverse=True):  # of several the first one counts
        same = key_of(other)[1] == name
        if (
            not same
            and recorded_uid(other)
            and (recorded_uid(other) != uid or _registration_order(other) < _registration_order(cluster))
        ):
            taken[recorded_uid(other)] = key_of(other)[1]
    accepted, taken_from = (
        annotation(cluster, one) for one in (names.ACCEPT_CLUSTER_ANNOTATION, names.TAKE_OVER_ANNOTATION)
    )
    return IdentityRecord(name, uid, accepted, taken, taken_from)


def recorded_uid(cluster: Raw) -> str:
    """The uid that is on record of a WorkerCluster, empty when it was never seen."""
    found = (cluster.get("status") or {}).get("clusterUID")
    return found if isinstance(found, str) else ""


def find_conflict(record: IdentityRecord, uid: str) -> IdentityConflict | None:
    """Why a cluster of this uid is not the one on record; None when it is, or when its admin says so."""
    if uid == record.accepted_uid:
        return None
    shown, accept = (
        printable(uid, _MAX_UID_LENGTH),
        f"kubectl annotate workercluster {record.name} --overwrite {names.ACCEPT_CLUSTER_ANNOTATION}=",
    )
    if record.uid not in ("", uid):
        return IdentityConflict(
            names.ConditionReason.IDENTITY_MISMATCH,
            f"its kubeconfig leads to another cluster than before: the uid of its namespace kube-system is {shown}, and "
            f"status.clusterUID says {printable(record.uid, _MAX_UID_LENGTH)}; nothing is read or written there, and what runs in the first one "
            "is left as it is. Put the kubeconfig right; or, if that cluster is gone for good and this one stands in its place, say "
            f"so: {accept}{shlex.quote(shown)}",
        )
    if uid in record.other_cluster_by_uid:
        return IdentityConflict(
            names.ConditionReason.DUPLICATE_CLUSTER,
            f"it is the cluster of WorkerCluster {record.other_cluster_by_uid[uid]}: the uid of its namespace kube-system is {shown} in both, and what "
            "is free there would be counted twice. Delete one of the two; or, if both are meant, for different nodes of it say, say "
            f"so: {accept}{shlex.quote(shown)}",
        )
    return None


def _registration_order(cluster: Raw) -> tuple[str, str]:
    """Who was registered first."""
    return str(meta(cluster).get("creationTimestamp") or ""), key_of(cluster)[1]
