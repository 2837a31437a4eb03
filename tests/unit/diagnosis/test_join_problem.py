"""Why a worker that runs has not joined Ray, from what its user may read."""

from typing import Any

import pytest

from adapter import names
from adapter.diagnosis import explain, join_problem
from adapter.diagnosis.join_problem import JoinEvidence
from adapter.objects.unstructured import Raw
from adapter.relay.relay_network import RelayNetwork
from tests.unit.builders import NAMESPACE, make_worker_cluster
from tests.unit.diagnosis.jobs import make_facts, make_head, make_worker

POD_IP, HEAD_IP = "10.2.0.9", "10.1.0.3"
GCS = {"name": "wait-gcs-ready", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}
TEST = "`kubectl rayspan preflight --worker-cluster west` tests the way"
LOG = "old\n" * 99 + "12 seconds elapsed: Waiting for GCS to be ready.\n"


def told(
    evidence: JoinEvidence,
    *,
    address: str = "PodIP",
    network: RelayNetwork | None = None,
    spec: Raw | None = None,
    **worker: Any,
) -> str:
    late = make_worker(1, cluster="west", up=False, podIP=POD_IP, **worker)
    first = make_head()
    first["status"]["podIP"] = HEAD_IP
    clusters = {"west": make_worker_cluster("west", head={"address": address})}
    if network:
        first["metadata"]["labels"][names.RELAY_LABEL] = network.identity
        first["status"]["initContainerStatuses"] = [{"name": names.RELAY_SERVER}]
        clusters = {"west": make_worker_cluster("west", network=spec)}
    facts = make_facts(pods=[first, make_worker(0), late], worker_clusters=clusters)
    unjoined = join_problem.unjoined_worker(facts, explain.pod_states(facts))
    assert unjoined and unjoined[0].name == late["metadata"]["name"]
    return join_problem.explain_join(*unjoined, facts, evidence)


@pytest.mark.parametrize(
    ("evidence", "want"),
    [
        pytest.param(
            JoinEvidence(),
            f"Likely the head does not reach pods of west, since they have reached its GCS: {TEST} back.",
            id="nothing can be read",
        ),
        pytest.param(
            JoinEvidence("bad port", {POD_IP: False}),
            "The log of train-abc-worker-1 ends with: bad port; Ray's head knows the node 10.2.0.9 as dead; likely "
            f"a firewall or a NetworkPolicy keeps the head from Ray's ports of pods in west: {TEST}.",
            id="the head has lost the node",
        ),
        pytest.param(
            JoinEvidence("", {POD_IP: True}),
            "Ray's head knows the node 10.2.0.9 as alive; likely its readiness probe fails, since the head reaches it.",
            id="the head reaches the node",
        ),
        pytest.param(
            JoinEvidence("", {HEAD_IP: True}),
            "Ray's head knows the node 10.2.0.9 not at all; likely its raylet has ended or registers under another "
            f"address; {TEST}.", id="the node has not registered",
        ),
    ],
)  # fmt: skip
def test_a_worker_that_runs(evidence: JoinEvidence, want: str) -> None:
    assert told(evidence, phase="Running") == want


def test_a_worker_that_waits_for_the_head() -> None:
    sentence = told(JoinEvidence(LOG), initContainerStatuses=[GCS])
    assert sentence.startswith("The log of train-abc-worker-1 ends with: …")
    assert (
        "Waiting for GCS to be ready.; likely its pods do not reach the head at 10.1.0.3 (spec.head.address PodIP of "
        in (sentence)
    )
    by_name = told(JoinEvidence(), address="ClusterSet", initContainerStatuses=[GCS])
    assert "reach the head (spec.head.address ClusterSet of WorkerCluster west)" in by_name


def test_a_worker_of_a_relayed_network_has_a_name() -> None:
    network = RelayNetwork("abc", NAMESPACE)
    node = network.node_name("train-abc-worker-1", "west")
    assert told(JoinEvidence("", {node: False, POD_IP: True}), network=network, phase="Running") == (
        f"Ray's head knows the node {node} as dead; likely its container rayspan-relay has lost the head's server: its "
        f"log says why, and {TEST}."
    )


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        (
            {"mode": "Relay", "address": "relay.example.com:30443", "image": "relay:1"},
            "by the relay at relay.example.com:30443 (spec.network of WorkerCluster west)",
        ),
        ({}, f"at {HEAD_IP}, port 29170"),
    ],
    ids=["relayed", "flat"],
)
def test_a_worker_of_a_relayed_network_dials_the_relay_or_the_head(spec: Raw, target: str) -> None:
    network = RelayNetwork("abc", NAMESPACE)
    sentence = told(JoinEvidence(), network=network, spec=spec, initContainerStatuses=[GCS])
    assert f"its pods do not reach the head {target}, whose GCS it waits for" in sentence


def test_the_log_is_of_the_container_that_waits() -> None:
    for statuses, container in (({"initContainerStatuses": [GCS]}, "wait-gcs-ready"), ({"phase": "Running"}, "ray")):
        late = make_worker(1, cluster="west", up=False, **statuses)
        late["spec"]["containers"] = [{"name": "ray"}, {"name": "side"}]
        facts = make_facts(pods=[make_head(), late])
        unjoined = join_problem.unjoined_worker(facts, explain.pod_states(facts))
        assert unjoined and join_problem.container_to_read(*unjoined) == container


def test_a_worker_without_a_cluster_has_no_log() -> None:
    facts = make_facts(pods=[make_head(), make_worker(0)])
    assert join_problem.unjoined_worker(facts, explain.pod_states(facts)) is None
