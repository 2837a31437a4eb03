"""Real connections between pods of islands: those of one cluster reach each other, those of two do not, and all reach
the manager's one port, where they come from their NAT's address.

Each cluster has two pods that answer with their name and the address that they see. Pods of two clusters may have the
same address, so an answer counts by its name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.lab.base.lab import API_PORT, OPEN_PORT, Lab
from hack.lab.images import images
from hack.testbed import clusters
from hack.testbed.clusters import Clusters, wait
from hack.testbed.reader import Raw

NAMESPACE = "islands"
PORT = 7000
KUBELET = 10250
PODS = ("a", "b")
_ANSWERS = f"""
import socketserver, sys
class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall((sys.argv[1] + " " + self.client_address[0]).encode())
socketserver.ThreadingTCPServer(("", {PORT}), Answer).serve_forever()
"""
_DIALS = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def dial(end):
    try:
        with socket.create_connection(end, 3) as link:
            link.settimeout(3)
            return "open " + (link.recv(99).decode() if end[1] in (7000, 30443) else "")
    except OSError as error:
        return type(error).__name__
ends = json.loads(sys.argv[1])
print(json.dumps(list(ThreadPoolExecutor(len(ends)).map(dial, map(tuple, ends)))))
"""


@pytest.fixture(scope="module")
def fleet_of_islands(islands: Lab) -> Iterator[Clusters]:
    """The clusters, with pods that answer."""
    fleet = clusters.of_lab()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda cluster: cluster.apply(json.dumps(_objects(cluster.name))), fleet.all))
    fleet.manager.apply(json.dumps(_open_port()))
    wait(lambda: all(len(_addresses(fleet, cluster.name)) == len(PODS) for cluster in fleet.all), 90, "all pods run")
    yield fleet
    for cluster in fleet.all:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_pods_of_one_cluster_reach_each_other(fleet_of_islands: Clusters) -> None:
    for cluster in fleet_of_islands.all:
        addresses = _addresses(fleet_of_islands, cluster.name)
        (answer,) = _dial(fleet_of_islands, cluster.name, [(addresses["b"], PORT)])
        assert answer == f"open {cluster.name}-b {addresses['a']}", "untranslated"


def test_pods_of_two_clusters_do_not(fleet_of_islands: Clusters, islands: Lab) -> None:
    for cluster in islands.clusters:
        ends = [end for other in islands.others(cluster) for end in _ends_within(fleet_of_islands, other.name)]
        answers = _dial(fleet_of_islands, cluster.name, ends)
        names = [answer.split()[1] for answer in answers if answer.startswith("open ")]
        assert [name for name in names if not name.startswith(f"{cluster.name}-")] == [], "its own pods at most"


def test_all_reach_the_managers_one_port_from_their_nats_address(fleet_of_islands: Clusters, islands: Lab) -> None:
    manager = islands.manager
    for cluster in islands.worker_clusters:
        (answer,) = _dial(fleet_of_islands, cluster.name, [(manager.address, OPEN_PORT)])
        assert answer == f"open mgr-a {cluster.address}"
    (own,) = _dial(fleet_of_islands, "mgr", [(manager.address, OPEN_PORT)])
    assert own.startswith("open mgr-a "), "its own pods, too"


def test_only_the_manager_reaches_api_servers_and_nobody_anything_else(
    fleet_of_islands: Clusters, islands: Lab
) -> None:
    manager, workers = islands.manager, islands.worker_clusters
    servers = [(worker.address, API_PORT) for worker in workers]
    assert _dial(fleet_of_islands, "mgr", servers) == ["open "] * len(workers)
    for worker in workers:
        closed = [end for end in servers if end[0] != worker.address]
        closed += [(manager.address, port) for port in (API_PORT, PORT, KUBELET)]
        assert _dial(fleet_of_islands, worker.name, closed) == ["TimeoutError"] * len(closed)


def _ends_within(fleet: Clusters, name: str) -> Iterable[tuple[str, int]]:
    return [(address, PORT) for address in _addresses(fleet, name).values()]


def _dial(fleet: Clusters, name: str, ends: Iterable[tuple[str, int]]) -> list[str]:
    """What pod a of a cluster is answered at each of these addresses and ports."""
    command = ("exec", "a", "--", "python3", "-c", _DIALS, json.dumps(list(ends)))
    answers: list[str] = json.loads(_cluster(fleet, name).kubectl("-n", NAMESPACE, *command))
    return answers


def _addresses(fleet: Clusters, name: str) -> Mapping[str, str]:
    """The addresses of a cluster's pods that are ready."""
    pods = _cluster(fleet, name).items("pods", NAMESPACE)
    return {
        pod["metadata"]["name"]: pod["status"]["podIP"]
        for pod in pods
        if clusters.condition(pod, "Ready").get("status") == "True"
    }


def _cluster(fleet: Clusters, name: str) -> clusters.Cluster:
    return next(cluster for cluster in fleet.all if cluster.name == name)


def _objects(cluster: str) -> Raw:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return {"apiVersion": "v1", "kind": "List", "items": [namespace, *(_pod(cluster, name) for name in PODS)]}


def _pod(cluster: str, name: str) -> Raw:
    container = {
        "name": "answers",
        "image": images.reference("ray"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", _ANSWERS, f"{cluster}-{name}"],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"answers": name}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _open_port() -> Raw:
    """With `Local` kube-proxy leaves the source address as it is."""
    spec = {
        "type": "NodePort",
        "externalTrafficPolicy": "Local",
        "selector": {"answers": "a"},
        "ports": [{"port": PORT, "nodePort": OPEN_PORT}],
    }
    metadata = {"name": "open", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
