"""Decides whether the cluster at the end of a login is the one on record, and whether this manager may act there.

The controller has the same guards for its own requests (admission.cluster_identity, admission.cluster_claim). Each
result is a part of a sentence, or empty.
"""

from typing import Final

from adapter import names
from adapter.admission import cluster_claim, cluster_identity
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, condition, key_of, printable

_NO_IDENTITY: Final = (names.ConditionReason.IDENTITY_MISMATCH, names.ConditionReason.DUPLICATE_CLUSTER)


def record_problem(worker_cluster: Raw, *, acts: bool) -> str:
    """Why the controller does not use this WorkerCluster's cluster; checked before any request to the cluster.

    `acts`: the request may change something there, as a command may and a log may not.
    """
    connected = condition(worker_cluster, names.CONNECTED)
    reasons = (*_NO_IDENTITY, names.ConditionReason.CLAIM_CONFLICT) if acts else _NO_IDENTITY
    if connected.get("status") != "False" or connected.get("reason") not in reasons:
        return ""
    return (
        f"condition {names.CONNECTED} of WorkerCluster {key_of(worker_cluster)[1]} is {connected.get('reason')}, so an "
        "administrator of the manager must correct it first; its message says how"
    )


def identity_problem(worker_cluster: Raw, uid: str) -> str:
    """Why the cluster whose kube-system has this uid is not the one on record."""
    record = cluster_identity.identity_record(worker_cluster, [worker_cluster])
    if not uid:
        return "it shows no namespace kube-system, by which it would be known; see who may list namespaces there"
    conflict = cluster_identity.find_conflict(record, uid)
    if conflict:
        return conflict.message
    if not record.uid:
        return (
            f"status.clusterUID of WorkerCluster {record.name} is empty, so it is not known which cluster this is; "
            "the controller writes it as soon as it is connected"
        )
    return ""


def claim_problem(manager: str, cluster: str, claim: Raw | None, leader_lease: Raw | None) -> str:
    """Why this manager may not act in the cluster: another one, such as a clone or its original, has the claim.

    `manager` is our cluster identity, `claim` the Lease in the worker cluster, `leader_lease` the Lease of this
    manager's controller. A free claim forbids nothing: the controller takes it when it runs. Nor does a manager without
    a leader, as during an upgrade: commands then still work in the manager that has the claim, which is not known.
    """
    holder, leader = (cluster_claim.holder_identity(lease) for lease in (claim, leader_lease))
    if not leader or holder in ("", leader):
        return ""
    return (
        f"its claim (Lease {cluster_claim.lease_name(manager, cluster)} in its namespace {names.SYSTEM_NAMESPACE}) is "
        f"held by {printable(holder, MAX_ITEM_LENGTH)}, and the controller of this manager is "
        f"{printable(leader, MAX_ITEM_LENGTH)} (Lease {names.LEASE}); a manager without the claim, as a clone of the "
        "one that has it, runs no command there. Try again in a minute, or see condition "
        f"{names.CONNECTED} of WorkerCluster {cluster}"
    )
