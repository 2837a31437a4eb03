"""Computes the condition Ready of a WorkerCluster or a DispatchPolicy.

Tools that do not know our kinds take an object without Ready for healthy. Ready sums up what is known; a cordon is no
fault. A policy is Ready also while its clusters are unreachable: a flapping connection would otherwise change every
policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from adapter import names
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, resolve_policy
from adapter.objects import specs
from adapter.objects.reservation import latest_replacement
from adapter.objects.unstructured import Raw, condition, key_of


@dataclass(frozen=True, slots=True)
class Readiness:
    """The content of the condition Ready."""

    status: str  # True, False or Unknown
    reason: str
    message: str


def cluster_readiness(cluster: Raw, cut_off: str, *, unguarded: bool = False, expiring: str = "") -> Readiness | None:
    """Whether workers may go to a WorkerCluster and work there; None while it has no condition Connected.

    `cut_off` is a sentence why workers there would not reach other workers or the head. `unguarded`: the cluster allows
    no claim, and workers are sent there without one. `expiring` is a sentence that the token ends soon.
    """
    connected = condition(cluster, names.CONNECTED)
    if not connected:
        return None
    connection = str(connected.get("reason") or ""), str(connected.get("message") or "")
    if connected.get("status") != "True":
        return Readiness(str(connected.get("status")), *connection)
    unclaimed = unguarded and connection[0] == names.ConditionReason.NOT_CLAIMED
    # The cluster is reachable, but gets no new workers.
    if connection[0] != names.ConditionReason.CONNECTED and not unclaimed:
        return Readiness("False", *connection)
    readiness = _connected_readiness(cluster, cut_off)
    if unclaimed and readiness.reason == names.ConditionReason.READY:
        return Readiness("True", *connection)
    # The messages of Connected, which are returned above, contain `expiring` already.
    return replace(readiness, message=f"{readiness.message} {expiring}".rstrip())


def _connected_readiness(cluster: Raw, cut_off: str) -> Readiness:
    if cut_off:
        return Readiness("False", str(condition(cluster, names.REACHABLE).get("reason") or ""), cut_off)
    spec = cluster.get("spec") or {}
    if spec.get("draining"):
        return Readiness(
            "True",
            names.ConditionReason.DRAINING,
            "It is drained: its workers are moved away, and no new ones go there.",
        )
    if spec.get("cordoned"):
        return Readiness("True", names.ConditionReason.CORDONED, "It is cordoned: no new workers go there.")
    return Readiness("True", names.ConditionReason.READY, "New workers may go there.")


def policy_readiness(policy: Raw, policy_objects: PolicyObjects) -> Readiness:
    """Whether jobs can be planned by a DispatchPolicy, with or without an AdmissionCheck."""
    name = f"{names.DISPATCH_POLICY_KIND} {key_of(policy)[1]}"
    try:
        resolved_policy = resolve_policy(policy, policy_objects)
    except specs.InvalidSpec as error:
        return Readiness("False", names.ConditionReason.BAD_CONFIGURATION, str(error))
    if not resolved_policy.clusters:
        return Readiness("False", names.ConditionReason.NO_CLUSTER, no_cluster_message(key_of(policy)[1]))
    known = {key_of(raw)[1] for raw in policy_objects.clusters}
    missing = [cluster for cluster in resolved_policy.clusters if cluster not in known]
    existing = [cluster for cluster in resolved_policy.clusters if cluster in known]
    if missing and (resolved_policy.policy.clusters.names or not existing):
        return Readiness(
            "False",
            names.ConditionReason.UNKNOWN_CLUSTER,
            f"{name}: {_unknown_clusters_message(resolved_policy, missing)}",
        )
    late_workers = _describe_late_workers(name, resolved_policy, policy_objects)
    messages = [*_ready_messages(existing, missing), late_workers]
    return Readiness("True", names.ConditionReason.READY, " ".join(filter(None, messages)))


def start_timeout_warning(policy: Raw, policy_objects: PolicyObjects) -> str:
    """A sentence on a policy whose late workers are not placed elsewhere, because a cluster's Kueue stops them before.

    Empty if there is no such cluster, or the policy cannot be read.
    """
    try:
        resolved_policy = resolve_policy(policy, policy_objects)
    except specs.InvalidSpec:
        return ""
    title = f"{names.DISPATCH_POLICY_KIND} {key_of(policy)[1]}"
    return _describe_late_workers(title, resolved_policy, policy_objects)


def _describe_late_workers(title: str, resolved_policy: ResolvedPolicy, policy_objects: PolicyObjects) -> str:
    """Kueue's time begins when it admits the share, ours when the remote pod is created and the head is ready.

    So some minutes must be between the ends.
    """
    timeout = resolved_policy.policy.worker_start_timeout
    limits = {
        name: latest_replacement(ready_timeout)
        for name, ready_timeout in _pods_ready_timeouts(resolved_policy, policy_objects).items()
        if timeout > latest_replacement(ready_timeout)
    }
    if not limits:
        return ""
    return (
        f"{title}: spec.workerStartTimeout is {_minutes(timeout)}, and Kueue "
        f"in {', '.join(limits)} stops the workers of a share of which none is ready before that; set it to at most "
        f"{_minutes(min(limits.values()))}, or raise waitForPodsReady.timeout of Kueue there and "
        "spec.podsReadyTimeout of the WorkerCluster."
    )


def _pods_ready_timeouts(resolved_policy: ResolvedPolicy, policy_objects: PolicyObjects) -> dict[str, timedelta]:
    by_name = {key_of(raw)[1]: raw for raw in policy_objects.clusters}
    timeouts = dict[str, timedelta]()
    for name in resolved_policy.clusters:
        try:
            timeouts[name] = specs.parse_worker_cluster(by_name.get(name, {})).pods_ready_timeout
        except specs.InvalidSpec:
            continue  # the WorkerCluster's own condition reports the fault
    return timeouts


def _minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:g} min"


def no_cluster_message(name: str) -> str:
    """The sentence on a DispatchPolicy that chooses no WorkerCluster."""
    return f"{names.DISPATCH_POLICY_KIND} {name} selects no WorkerCluster; label or name one."


def _unknown_clusters_message(resolved_policy: ResolvedPolicy, missing: list[str]) -> str:
    several = len(missing) > 1
    those = f"WorkerCluster{'s' if several else ''} {', '.join(missing)}"
    if config := resolved_policy.policy.clusters.multi_kueue_config_ref:
        return (
            f"MultiKueueConfig {config.name} of spec.clusters.multiKueueConfigRef lists no cluster that is a "
            f"WorkerCluster; create {those}, with the MultiKueueCluster in spec.source.multiKueueClusterRef."
        )
    them = ("which do not exist", "them") if several else ("which does not exist", "it")
    return f"spec.clusters.names has {those}, {them[0]}; join {them[1]} (`kubectl rayspan join`), or remove {them[1]}."


def _ready_messages(known: list[str], missing: list[str]) -> Iterator[str]:
    """The sentences of a policy that is Ready.

    A MultiKueueConfig is not written for us, so unknown clusters in it are no fault of the policy.
    """
    yield f"Considers {', '.join(known)}."
    if missing:
        yield f"Its MultiKueueConfig also lists {', '.join(missing)}, for which there is no WorkerCluster."
