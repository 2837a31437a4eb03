"""Can a WorkerCluster take workers, can a DispatchPolicy be used: one answer each, which names the one thing that is wrong.

Tools that know nothing of us wait for the condition Ready, and call an object without one healthy. So it sums up what is known
already, and finds out nothing itself. A cordon is what its admin wants, and no fault. Whether the clusters of a policy can be seen is
said on each of them: a link that comes and goes would else be told on every policy, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from adapter import names
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, resolve_policy
from adapter.objects import specs
from adapter.objects.unstructured import Raw, condition, key_of


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the condition Ready is to say."""

    status: str  # True, False or Unknown
    reason: str
    message: str


def cluster_readiness(cluster: Raw, cut_off: str, *, unguarded: bool = False, expiring: str = "") -> Readiness | None:
    """Say whether workers may go to a WorkerCluster and work there, None while nobody has said whether it is connected.

    The conditions are taken in this order: what cannot be seen cannot be judged further. `cut_off` is why workers there would not reach
    the others, a sentence. `unguarded`: no claim to it can be held, and work goes on without. `expiring` is that its token ends soon, a sentence.
    """
    connected = condition(cluster, names.CONNECTED)
    if not connected:
        return None
    told = str(connected.get("reason") or ""), str(connected.get("message") or "")
    if connected.get("status") != "True":
        return Readiness(str(connected.get("status")), *told)
    unclaimed = unguarded and told[0] == names.ConditionReason.NOT_CLAIMED
    if told[0] != names.ConditionReason.CONNECTED and not unclaimed:  # it is seen, and nothing new goes there
        return Readiness("False", *told)
    found = _connected_readiness(cluster, cut_off)
    if unclaimed and found.reason == names.ConditionReason.READY:
        return Readiness("True", *told)
    return replace(found, message=f"{found.message} {expiring}".rstrip())  # what Connected says has it already


def _connected_readiness(cluster: Raw, cut_off: str) -> Readiness:
    """The same of one that is seen, and to which new workers would be sent."""
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
    """Say whether jobs can be planned by a DispatchPolicy. That no AdmissionCheck names it is no fault of it."""
    name = f"{names.DISPATCH_POLICY_KIND} {key_of(policy)[1]}"
    try:
        found = resolve_policy(policy, policy_objects)
    except specs.InvalidSpec as error:
        return Readiness("False", names.ConditionReason.BAD_CONFIGURATION, str(error))
    if not found.clusters:
        return Readiness("False", names.ConditionReason.NO_CLUSTER, no_cluster_message(key_of(policy)[1]))
    known = {key_of(raw)[1] for raw in policy_objects.clusters}
    missing = [cluster for cluster in found.clusters if cluster not in known]
    there = [cluster for cluster in found.clusters if cluster in known]
    if missing and (found.policy.clusters.names or not there):
        return Readiness(
            "False", names.ConditionReason.UNKNOWN_CLUSTER, f"{name}: {_unknown_clusters_message(found, missing)}"
        )
    return Readiness("True", names.ConditionReason.READY, " ".join(_ready_messages(there, missing)))


def no_cluster_message(name: str) -> str:
    """The sentence on a DispatchPolicy of that name that leaves no WorkerCluster to choose from."""
    return f"{names.DISPATCH_POLICY_KIND} {name} chooses no WorkerCluster; label or name one."


def _unknown_clusters_message(resolved_policy: ResolvedPolicy, missing: list[str]) -> str:
    several = len(missing) > 1
    those = f"WorkerCluster{'s' if several else ''} {', '.join(missing)}"
    if config := resolved_policy.policy.clusters.multi_kueue_config_ref:
        return (
            f"MultiKueueConfig {config.name} of spec.clusters.multiKueueConfigRef lists no cluster that is a WorkerCluster; make "
            f"{those}, with the MultiKueueCluster in spec.source.multiKueueClusterRef."
        )
    them = ("which do not exist", "them") if several else ("which does not exist", "it")
    return (
        f"spec.clusters.names has {those}, {them[0]}; join {them[1]} (`kubectl rayspan join`), or take {them[1]} out."
    )


def _ready_messages(known: list[str], missing: list[str]) -> Iterator[str]:
    """A MultiKueueConfig is not written for us: what else it lists is passed over, and is no fault of the policy."""
    yield f"Considers {', '.join(known)}."
    if missing:
        yield f"Its MultiKueueConfig also lists {', '.join(missing)}, for which there is no WorkerCluster."
