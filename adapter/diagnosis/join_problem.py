"""Explains why a worker that runs has not joined Ray: the end of its log, the head's view, and the likely fault.

The log and the head's view are read with the user's rights, and may be unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from adapter import names
from adapter.diagnosis.blocker import as_sentence
from adapter.diagnosis.job_facts import JobFacts, is_head
from adapter.diagnosis.pod_state import MANAGER, WAITS_FOR_GCS, PodState, last_words
from adapter.objects.unstructured import Raw, key_of, mapping_field, printable, text_field
from adapter.relay.relay_network import network_of_head

_DEFAULT_ADDRESS: Final = "PodIP"  # of a WorkerCluster's spec.head


@dataclass(frozen=True, slots=True)
class JoinEvidence:
    """What was read of a worker that has not joined."""

    log: str = ""  # its last lines; empty: unknown
    node_states: Mapping[str, bool] | None = None  # by the head's word for a node, whether it is alive; None: unknown


def container_to_read(worker: PodState, pod: Raw) -> str:
    """The container whose log says why: KubeRay's init container while that waits, else the Ray container."""
    if worker.reason == WAITS_FOR_GCS:
        return names.GCS_WAITER
    containers = mapping_field(pod, "spec").get("containers") or [{}]
    return str(containers[0].get("name") or "")


def unjoined_worker(facts: JobFacts, states: list[PodState]) -> tuple[PodState, Raw] | None:
    """The first worker that runs in a worker cluster and has not joined, with its manager pod."""
    pods = {key_of(pod)[1]: pod for pod in facts.pods}
    unjoined = [
        state
        for state in states
        if state.role == names.WORKER and state.step == "NotJoined" and state.cluster not in ("", MANAGER)
    ]
    worker = min(unjoined, key=lambda state: state.name, default=None)
    return (worker, pods[worker.name]) if worker else None


def explain_join(worker: PodState, pod: Raw, facts: JobFacts, evidence: JoinEvidence) -> str:
    """One sentence; parts that are unknown are left out."""
    node = _node_name(pod, facts)
    parts = [
        f"the log of {worker.name} ends with: {words}" if (words := last_words(evidence.log)) else "",
        _head_view(node, evidence),
        _likely_fault(worker, node, facts, evidence),
    ]
    sentence = as_sentence("; ".join(part for part in parts if part))
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _head_view(node: str, evidence: JoinEvidence) -> str:
    if evidence.node_states is None:
        return ""
    view = {True: "as alive", False: "as dead", None: "not at all"}[evidence.node_states.get(node)]
    return f"Ray's head knows the node {node} {view}"


def _likely_fault(worker: PodState, node: str, facts: JobFacts, evidence: JoinEvidence) -> str:
    cluster, alive = worker.cluster, (evidence.node_states or {}).get(node)
    test = f"`kubectl rayspan preflight --worker-cluster {cluster}` tests the way"
    if worker.reason == WAITS_FOR_GCS:
        return f"likely its pods do not reach the head{_head_target(cluster, facts)}, whose GCS it waits for: {test}"
    if alive:
        return "likely its readiness probe fails, since the head reaches it"
    if network_of_head(_head(facts)):
        return f"likely its container {names.RELAY_CLIENT} has lost the head's server: its log says why, and {test}"
    if alive is False:
        return f"likely a firewall or a NetworkPolicy keeps the head from Ray's ports of pods in {cluster}: {test}"
    if evidence.node_states is not None:
        return f"likely its raylet has ended or registers under another address; {test}"
    return f"likely the head does not reach pods of {cluster}, since they have reached its GCS: {test} back"


def _head_target(cluster: str, facts: JobFacts) -> str:
    """` at ADDRESS (spec.head.address MODE of WorkerCluster NAME)`, or the relay's; as far as it is known."""
    head, spec = _head(facts), mapping_field(facts.worker_clusters.get(cluster) or {}, "spec")
    if network_of_head(head):
        relay = printable(text_field(mapping_field(spec, "network"), "address"))
        by_relay = f" by the relay at {relay} (spec.network of WorkerCluster {cluster})"
        return by_relay if relay else f" at {_address(head)}, port {names.RELAY_SERVER_PORT}"
    mode = text_field(mapping_field(spec, "head"), "address") or _DEFAULT_ADDRESS
    address = _address(head) if mode == _DEFAULT_ADDRESS else ""
    return f"{f' at {address}' if address else ''} (spec.head.address {printable(mode)} of WorkerCluster {cluster})"


def _head(facts: JobFacts) -> Raw:
    return next((pod for pod in facts.pods if is_head(pod)), {})


def _node_name(pod: Raw, facts: JobFacts) -> str:
    """By what the head knows a pod's node: its name in a relayed network, else its IP."""
    network = network_of_head(_head(facts))
    return network.node_of_pod(pod) if network else _address(pod)


def _address(pod: Raw) -> str:
    return printable(text_field(mapping_field(pod, "status"), "podIP"))
