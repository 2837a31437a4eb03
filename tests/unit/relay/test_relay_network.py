"""The names of a relayed network are names of DNS, whatever the cluster is called, and each token proves one name."""

import hashlib
import hmac
import re

import pytest

from adapter.relay.relay_network import HEAD, MANAGER, RelayNetwork, node_token, router_service

NETWORK = RelayNetwork("abcde01234", "team-a")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def test_the_head_and_workers_have_names_of_dns() -> None:
    assert NETWORK.head_node == "head.rayspan-relay-abcde01234.team-a.svc.cluster.local"
    assert NETWORK.node_name("w-1", "east") == "w-1.rayspan-relay-abcde01234-east.team-a.svc.cluster.local"
    assert NETWORK.server_name == "abcde01234.relay"
    assert NETWORK.router_service == router_service("abcde01234") == "rayspan-head-abcde01234"


@pytest.mark.parametrize("cluster", [MANAGER, "east", "east.example.com", "e" * 63, "9", "manager", "head"])
def test_a_service_of_nodes_is_a_label_of_dns(cluster: str) -> None:
    assert LABEL.fullmatch(NETWORK.node_service(cluster))


def test_no_two_clusters_share_a_domain() -> None:
    clusters = [MANAGER, HEAD, "manager", "east", "east.a", "east-a", "e" * 62, "e" * 63]
    assert len({NETWORK.node_domain(cluster) for cluster in clusters}) == len(clusters)


def test_a_token_proves_one_name_of_one_network() -> None:
    key, other = "00" * 32, "01" * 32
    wanted = hmac.new(bytes(32), b"7 a", hashlib.sha256).hexdigest()
    assert node_token(key, "a", 7) == f"7.{wanted}"
    tokens = {node_token(key, "a"), node_token(key, "b"), node_token(other, "a"), node_token(key, "a", 1)}
    assert len({token.partition(".")[2] for token in tokens}) == 4
