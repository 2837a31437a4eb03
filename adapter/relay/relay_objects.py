"""The objects of a relayed network: a Secret and a Service in each cluster, and what leads routers to its head."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapter import names, programs
from adapter.objects.unstructured import Raw
from adapter.relay import frp_config
from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import HEAD, MANAGER, RelayNetwork, node_token, token_key

HOOK_KEY: Final = "hook"
NAMES_KEY: Final = "names.key"
CONNECT_KEY: Final = "connect.secret"
NODES_KEY: Final = "nodes.json"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its private key, as PEM."""

    certificate: str
    private_key: str


@dataclass(frozen=True, slots=True)
class RelaySecrets:
    """What only the controller has of a network. The authority's own key is not among it."""

    authority: str  # the certificate, as PEM
    names_key: str  # in hex
    connect_secret: str  # which all nodes have; no protection alone, as each node must log in, too


def head_secret(network: RelayNetwork, secrets: RelaySecrets, server: KeyPair, client: KeyPair) -> dict[str, Any]:
    """The Secret beside the head. All nodes with a token may log in, until nodes.json says otherwise."""
    data = {
        **_client_files(secrets, client),
        frp_config.SERVER_CERT_KEY: server.certificate,
        frp_config.SERVER_PRIVATE_KEY_KEY: server.private_key,
        frp_config.SERVER_CONFIG_KEY: frp_config.server_config(network),
        frp_config.CLIENT_CONFIG_KEY: frp_config.head_client_config(network, secrets.connect_secret),
        HOOK_KEY: programs.RELAY_HOOK,
        NAMES_KEY: secrets.names_key,
        CONNECT_KEY: secrets.connect_secret,
        NODES_KEY: present_nodes(network, 0, {}),
        token_key(HEAD): node_token(secrets.names_key, network.head_node),
    }
    return _secret(network, network.secret, data)


def present_nodes(network: RelayNetwork, since: int, pods: Mapping[str, Iterable[str]]) -> str:
    """The file by which the hook knows which tokens are revoked.

    `pods` are those in each cluster, without clusters of which nothing is known. Tokens issued at `since` or later, in
    seconds of Unix time, are valid for other pods as well.
    """
    clusters = {network.node_domain(cluster): sorted(nodes) for cluster, nodes in pods.items()}
    return json.dumps({"since": since, "clusters": clusters}, sort_keys=True)


def worker_secret(
    network: RelayNetwork,
    secrets: RelaySecrets,
    client: KeyPair,
    relay: RelayAddress,
    cluster: str,
    pod: str,
    issued_at: int = 0,
) -> dict[str, Any]:
    """The Secret of a worker's pod: a client's certificate for all nodes of its cluster, and the token of its own."""
    token = node_token(secrets.names_key, network.node_name(pod, cluster), issued_at)
    config = frp_config.worker_client_config(network, relay, secrets.connect_secret)
    data = {**_client_files(secrets, client), frp_config.CLIENT_CONFIG_KEY: config, token_key(pod): token}
    return _secret(network, network.worker_secret(pod), data)


def node_service(network: RelayNetwork, cluster: str, selector: Mapping[str, str]) -> dict[str, Any]:
    """The headless Service that gives names to the nodes in a cluster; a node has its name before it is ready."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": dict(selector)}
    return _object("v1", "Service", network.namespace, network.node_service(cluster), spec=spec)


def head_service(network: RelayNetwork, selector: Mapping[str, str]) -> dict[str, Any]:
    return node_service(network, MANAGER, selector)


def router_objects(network: RelayNetwork, namespace: str, head_ip: str) -> list[dict[str, Any]]:
    """The Service and its slice that lead routers in `namespace` to the head's pod, which may be in any namespace."""
    name = network.router_service
    ports = [{"name": "relay", "port": names.RELAY_SERVER_PORT, "protocol": "TCP"}]
    labels = {names.SERVICE_NAME_LABEL: name, names.SLICE_MANAGED_BY_LABEL: names.DOMAIN}
    endpoints = [{"addresses": [head_ip], "conditions": {"ready": True}}] if head_ip else []
    slice_ = _object(names.DISCOVERY_API_VERSION, "EndpointSlice", namespace, name, labels, ports=ports)
    return [
        _object("v1", "Service", namespace, name, spec={"clusterIP": "None", "ports": ports}),
        {**slice_, "addressType": "IPv4", "endpoints": endpoints},
    ]


def _client_files(secrets: RelaySecrets, client: KeyPair) -> dict[str, str]:
    return {
        frp_config.CA_KEY: secrets.authority,
        names.TLS_CERT_KEY: client.certificate,
        names.TLS_PRIVATE_KEY_KEY: client.private_key,
    }


def _secret(network: RelayNetwork, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return _object("v1", "Secret", network.namespace, name, stringData=dict(data))


def _object(
    api_version: str, kind: str, namespace: str, name: str, labels: Mapping[str, str] | None = None, **rest: Raw | Any
) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "labels": dict(labels or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
