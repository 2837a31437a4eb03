"""The configurations of a server and its clients fit each other. That frp accepts them: tests/islands/test_relay.py."""

import json
from typing import Any

import pytest

from adapter import names
from adapter.relay import frp_config
from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import RelayNetwork

NETWORK = RelayNetwork("abcde01234", "team-a")
SERVER = json.loads(frp_config.server_config(NETWORK))
HEAD = json.loads(frp_config.head_client_config(NETWORK, "secret"))
WORKER = json.loads(frp_config.worker_client_config(NETWORK, RelayAddress("relay.example.com", 443), "secret"))
CLIENTS = [pytest.param(HEAD, id="head"), pytest.param(WORKER, id="worker")]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_speaks_as_its_server_does(client: dict[str, Any]) -> None:
    assert client["transport"]["tcpMux"] is SERVER["transport"]["tcpMux"] is False
    assert client["transport"]["heartbeatInterval"] < SERVER["transport"]["heartbeatTimeout"]
    assert client["transport"]["poolCount"] <= SERVER["transport"]["maxPoolCount"]
    assert client["user"] == NETWORK.identity, "a visitor must be the user of what it visits"


@pytest.mark.parametrize("client", CLIENTS)
def test_both_sides_show_certificates_of_the_networks_authority(client: dict[str, Any]) -> None:
    assert SERVER["transport"]["tls"] == {
        "force": True,
        "certFile": "/etc/rayspan-relay/server.crt",
        "keyFile": "/etc/rayspan-relay/server.key",
        "trustedCaFile": "/etc/rayspan-relay/ca.crt",
    }
    assert client["transport"]["tls"] == {
        "serverName": "abcde01234.relay",
        "certFile": "/etc/rayspan-relay/tls.crt",
        "keyFile": "/etc/rayspan-relay/tls.key",
        "trustedCaFile": "/etc/rayspan-relay/ca.crt",
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_offers_its_own_node_and_survives_a_failed_login(client: dict[str, Any]) -> None:
    own = client["proxies"][0]
    assert (own["type"], own["multiplexer"], own["plugin"]) == ("tcpmux", "httpconnect", {"type": "http_proxy"})
    assert own["customDomains"] == [own["name"]] == [client["metadatas"]["name"]] == ["{{ .Envs.RAYSPAN_NODE }}"]
    assert client["loginFailExit"] is False


def test_workers_visit_what_the_head_offers() -> None:
    assert (HEAD["serverAddr"], HEAD["serverPort"]) == ("127.0.0.1", SERVER["bindPort"])
    assert (WORKER["serverAddr"], WORKER["serverPort"]) == ("relay.example.com", 443)
    _, connect = HEAD["proxies"]
    (visitor,) = WORKER["visitors"]
    assert (connect["localIP"], connect["localPort"]) == ("127.0.0.1", SERVER["tcpmuxHTTPConnectPort"])
    assert visitor["serverName"] == connect["name"] and visitor["secretKey"] == connect["secretKey"] == "secret"
    assert "allowUsers" not in connect, "only its own user may visit it, and a user has logged in"


def test_ray_finds_its_proxy_at_one_port_in_all_pods_and_on_the_loopback_alone() -> None:
    (visitor,) = WORKER["visitors"]
    assert SERVER["tcpmuxHTTPConnectPort"] == visitor["bindPort"] == names.RELAY_PROXY_PORT
    assert SERVER["proxyBindAddr"] == visitor["bindAddr"] == "127.0.0.1"


def test_the_hook_is_asked_for_each_login_name_and_heartbeat_and_not_for_each_connection() -> None:
    (hook,) = SERVER["httpPlugins"]
    assert hook["addr"] == f"127.0.0.1:{names.RELAY_HOOK_PORT}"
    assert hook["ops"] == ["Login", "NewProxy", "Ping"]


@pytest.mark.parametrize("config", [SERVER, HEAD, WORKER], ids=["server", "head", "worker"])
def test_no_log_has_a_line_for_each_connection(config: dict[str, Any]) -> None:
    assert config["log"]["level"] == "warn"
