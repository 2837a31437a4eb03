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
from adapter.objects.unstructured import Raw, annotation, key_of, meta, quoted

_LONGEST = 64  # characters of a uid that are told; one has 36


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record of a WorkerCluster, as of one moment."""

    name: str
    uid: str = ""  # status.clusterUID; empty: it was never seen
    accepted: str = ""  # the uid that its admin takes it to have
    taken: Mapping[str, str] = field(default_factory=dict)  # uid -> another WorkerCluster, whose cluster that is
    taken_from: str = ""  # the holder from whom its admin has the claim taken (cluster_claim.py)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why what answers is not taken for the cluster: a condition's reason, and a part of a sentence."""

    reason: str
    why: str


def known(cluster: Raw, everyone: Iterable[Raw]) -> Known:
    """What is on record of one of the WorkerClusters."""
    name, uid = key_of(cluster)[1], recorded(cluster)
    taken = {}
    for other in sorted(everyone, key=_order, reverse=True):  # of several the first one counts
        same = key_of(other)[1] == name
        if not same and recorded(other) and (recorded(other) != uid or _order(other) < _order(cluster)):
            taken[recorded(other)] = key_of(other)[1]
    accepted, taken_from = (annotation(cluster, one) for one in (names.ACCEPT_ANNOTATION, names.TAKE_OVER_ANNOTATION))
    return Known(name, uid, accepted, taken, taken_from)


def recorded(cluster: Raw) -> str:
    """The uid that is on record of a WorkerCluster, empty when it was never seen."""
    found = (cluster.get("status") or {}).get("clusterUID")
    return found if isinstance(found, str) else ""


def refusal(known: Known, found: str) -> Refusal | None:
    """Why a cluster of this uid is not the one on record; None when it is, or when its admin says so."""
    if found == known.accepted:
        return None
    shown, accept = (
        quoted(found, _LONGEST),
        f"kubectl annotate workercluster {known.name} --overwrite {names.ACCEPT_ANNOTATION}=",
    )
    if known.uid not in ("", found):
        return Refusal(
            names.ANOTHER_CLUSTER,
            f"its kubeconfig leads to another cluster than before: the uid of its namespace kube-system is {shown}, and "
            f"status.clusterUID says {quoted(known.uid, _LONGEST)}; nothing is read or written there, and what runs in the first one "
            "is left as it is. Put the kubeconfig right; or, if that cluster is gone for good and this one stands in its place, say "
            f"so: {accept}{shlex.quote(shown)}",
        )
    if found in known.taken:
        return Refusal(
            names.REGISTERED_TWICE,
            f"it is the cluster of WorkerCluster {known.taken[found]}: the uid of its namespace kube-system is {shown} in both, and what "
            "is free there would be counted twice. Delete one of the two; or, if both are meant, for different nodes of it say, say "
            f"so: {accept}{shlex.quote(shown)}",
        )
    return None


def _order(cluster: Raw) -> tuple[str, str]:
    """Who was registered first."""
    return str(meta(cluster).get("creationTimestamp") or ""), key_of(cluster)[1]
