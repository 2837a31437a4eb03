"""The relay's protocol between islands: nodes of one Ray cluster join by their names through the manager's one port.

The nodes of another Ray cluster are out of reach.

Two networks stand beside each other. That of `ray` is a RayCluster by stock KubeRay: its head in the manager, and one
worker in each worker cluster. The nodes of `other` only answer.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import names
from adapter.relay.frp_config import FOLDER, RelayAddress
from adapter.relay.relay_network import node_token
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.lab.images import images
from hack.testbed import clusters, relay
from hack.testbed.clusters import wait
from hack.testbed.reader import Raw
from hack.testbed.relay import RelayedCluster

GCS_PORT = 6379
MEGABYTES = 16
_JOIN_SECONDS = 240  # for three Ray nodes to start on two busy processors
_CONNECTS = f"""
import json, socket, sys
def connect(end):
    try:
        with socket.create_connection(("127.0.0.1", {names.RELAY_PROXY_PORT}), 5) as link:
            link.settimeout(15)
            link.sendall(("CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % (end, end)).encode())
            return link.recv(99).split(b"\\r\\n")[0].decode().partition(" ")[2][:3] or "closed"
    except OSError as error:
        return type(error).__name__
print(json.dumps([connect(end) for end in sys.argv[1:]]))
"""
_TLS = f"""
import socket, ssl, sys
context = ssl.create_default_context(cafile="{FOLDER}/ca.crt")
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.load_cert_chain("{FOLDER}/tls.crt", "{FOLDER}/tls.key")
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as link:
        with context.wrap_socket(link, server_hostname=sys.argv[3]) as tls:
            tls.settimeout(15)
            tls.sendall(b"no message of frp")
            print("closed" if not tls.recv(99) else "answered")
except OSError as error:
    print(getattr(error, "reason", None) or type(error).__name__)
"""
_DRIVER = f"""
import json, time
import ray
ray.init(address="auto", logging_level="ERROR")
deadline = time.monotonic() + {_JOIN_SECONDS}
while sum(node["Alive"] for node in ray.nodes()) < 3 and time.monotonic() < deadline:
    time.sleep(1)
@ray.remote
def make(size):
    return bytes(size)
@ray.remote
def measure(data):
    return len(data), ray.util.get_node_ip_address()
there = {{name: {{"resources": {{"zone:" + name: 1}}}} for name in ("east", "west")}}
made = make.options(**there["east"]).remote({MEGABYTES} << 20)
answers = [measure.options(**there[name]).remote(made) for name in ("west", "east")]
back = ray.get(make.options(**there["west"]).remote({MEGABYTES} << 20), timeout=120)
nodes = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
print("RESULT " + json.dumps([nodes, ray.get(answers, timeout=120), len(back)]))
"""


@pytest.fixture(scope="module")
def routers(islands: Lab) -> Iterator[None]:
    """Two routers behind the manager's one port."""
    manager = clusters.of_lab().manager
    relay.bring(islands)
    try:
        relay.start_routers(manager)
        yield
    finally:
        manager.kubectl("delete", "namespace", relay.ROUTERS, "--ignore-not-found")


@pytest.fixture(scope="module")
def ray(routers: None, islands: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedCluster]:
    """A stock RayCluster: its head in the manager, and a worker in each worker cluster."""
    cluster = _relayed_cluster("relayray01", islands, tmp_path_factory.mktemp("ray"))
    try:
        cluster.prepare()
        cluster.start_ray()
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def other(routers: None, islands: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedCluster]:
    """A head and a worker in `east` that answer, of somebody else."""
    cluster = _relayed_cluster("relayother", islands, tmp_path_factory.mktemp("other"))
    try:
        cluster.prepare()
        cluster.start_head(_answering_container())
        cluster.set_token("east", "worker")
        cluster.start_worker("east", "worker", _answering_container())
        cluster.await_ready("east")
        yield cluster
    finally:
        cluster.remove()


def test_nodes_of_islands_join_one_ray_cluster_by_their_names(ray: RelayedCluster) -> None:
    for name in ("", *ray.workers):
        ray.await_ready(name, _JOIN_SECONDS)
    printed = ray.run("", _DRIVER)
    (result,) = (line for line in printed.splitlines() if line.startswith("RESULT "))  # Ray prints lines of its own
    nodes, measured, back = json.loads(result.removeprefix("RESULT "))
    assert nodes == sorted([ray.head, ray.node("east"), ray.node("west")])
    assert measured == [[MEGABYTES << 20, ray.node("west")], [MEGABYTES << 20, ray.node("east")]]
    assert back == MEGABYTES << 20


def test_connect_reaches_nodes_of_its_own_ray_cluster_alone(ray: RelayedCluster, other: RelayedCluster) -> None:
    foreign = [f"{other.head}:{GCS_PORT}", f"{other.node('east')}:{GCS_PORT}"]
    elsewhere = ["kubernetes.default.svc.cluster.local:443", "10.96.0.1:443", f"127.0.0.1:{names.RELAY_HOOK_PORT}"]
    wait(lambda: _connect(other, "east", f"{other.head}:{GCS_PORT}") == ["200"], 60, "the other's head answers")
    ray.await_ready("east", _JOIN_SECONDS)
    assert _connect(ray, "east", f"{ray.head}:{GCS_PORT}") == ["200"]
    assert _connect(ray, "east", *foreign, *elsewhere) == ["404"] * 5
    assert _connect(ray, "", *foreign, *elsewhere) == ["404"] * 5


def test_a_certificate_of_another_ray_cluster_is_refused(
    ray: RelayedCluster, other: RelayedCluster, islands: Lab
) -> None:
    def dial(server: str) -> str:
        words = (islands.manager.address, str(OPEN_PORT), server)
        return other.run("east", _TLS, *words, container=names.RELAY_CLIENT).strip()

    assert dial(other.network.server_name) == "closed", "after frp has read what is no message"
    assert dial(ray.network.server_name) == "TLSV1_ALERT_UNKNOWN_CA"


def test_a_node_with_a_wrong_token_is_refused(other: RelayedCluster) -> None:
    """The intruder has the authority's certificate and another node's token, which proves no name but that one's."""
    other.set_token("west", "intruder", node_token(other.secrets.names_key, other.node("east")))
    other.start_worker("west", "intruder", _answering_container())
    other.await_ready("west")
    refusal = f"refused Login: no valid token for {other.node('west')}"
    wait(lambda: refusal in other.hook_log, 60, "the intruder has been refused")
    assert {line for line in other.hook_log if other.node("west") in line} == {refusal}
    assert _connect(other, "", f"{other.node('west')}:{GCS_PORT}") == ["404"]
    assert _connect(other, "west", f"{other.head}:{GCS_PORT}") != ["200"]


def test_a_revoked_node_loses_its_name(other: RelayedCluster) -> None:
    """The last test of this network: its worker is out of it then."""
    node = other.node("east")
    wait(lambda: _connect(other, "", f"{node}:{GCS_PORT}") == ["200"], 60, f"{node} answers")
    other.revoke(node)
    wait(lambda: _connect(other, "", f"{node}:{GCS_PORT}") == ["404"], 120, f"{node} has no name")
    assert f"refused Ping: {node} is revoked" in other.hook_log
    wait(lambda: f"refused Login: {node} is revoked" in other.hook_log, 60, "its next login is refused")


def _relayed_cluster(identity: str, islands: Lab, folder: Path) -> RelayedCluster:
    fleet = clusters.of_lab()
    relay_address = RelayAddress(islands.manager.address, OPEN_PORT)
    return RelayedCluster(identity, folder, fleet.manager, fleet.workers, relay_address)


def _connect(cluster: RelayedCluster, place: str, *ends: str) -> list[str]:
    """What the proxy of a cluster's pod answers to CONNECT with each of these names."""
    answers: list[str] = json.loads(cluster.run(place, _CONNECTS, *ends))
    return answers


def _answering_container() -> Raw:
    return {
        "name": "answers",
        "image": images.reference("relay"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "http.server", str(GCS_PORT)],
        "readinessProbe": {"tcpSocket": {"port": GCS_PORT}, "periodSeconds": 1},
    }
