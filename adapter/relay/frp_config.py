"""The configurations of frp, version 0.65, as JSON: the server beside a head, and the clients of all nodes.

Each RayCluster has a server of its own, so its registry of names, its authority and its memory are its own. A client
dials the server, offers its own pod under its node's name, and proxies what Ray asks of other names. Sources:
frp:pkg/config/v1/server.go, frp:pkg/config/v1/client.go. frp puts variables of its environment into `{{ .Envs.X }}`.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from adapter import names
from adapter.relay.relay_network import RelayNetwork

FOLDER: Final = "/etc/rayspan-relay"  # where pods mount the Secret
CA_KEY: Final = "ca.crt"
SERVER_CERT_KEY, SERVER_PRIVATE_KEY_KEY = "server.crt", "server.key"
SERVER_CONFIG_KEY, CLIENT_CONFIG_KEY = "frps.json", "frpc.json"
NODE_ENV, TOKEN_ENV = "RAYSPAN_NODE", "RAYSPAN_NODE_TOKEN"

# One TCP connection for each of Ray's. Compared with one for each node: a tenth of the memory, a third more throughput.
_MULTIPLEXED: Final = False
_KEEPALIVE_SECONDS: Final = 20  # frp's default is two hours, in which half-open connections stay
_HEARTBEAT_SECONDS, _SILENCE_SECONDS = 10, 30
_POOL: Final = 1  # connections that wait for their use; each node holds so many at the router, and one more
_DIAL_SECONDS: Final = 5
_LOG: Final = {"to": "console", "level": "warn", "disablePrintColor": True, "maxDays": 1}  # "info" logs each connection
_NODE: Final = f"{{{{ .Envs.{NODE_ENV} }}}}"
_TOKEN: Final = f"{{{{ .Envs.{TOKEN_ENV} }}}}"
_LOOPBACK: Final = "127.0.0.1"
_CONNECT: Final = "connect"  # the head's proxy through which all nodes reach the names
# What the hook decides. The operation NewWorkConn would ask it for each connection.
_HOOK_OPERATIONS: Final = ("Login", "NewProxy", "Ping")


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """The router's port, as a worker cluster reaches it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_config(network: RelayNetwork) -> str:
    """The server beside the head. It listens to the router, and to the head's own Ray on the loopback alone."""
    tls = {"force": True, **_tls_files(SERVER_CERT_KEY, SERVER_PRIVATE_KEY_KEY)}
    return _dump(
        {
            "bindAddr": "0.0.0.0",
            "bindPort": names.RELAY_SERVER_PORT,
            "proxyBindAddr": _LOOPBACK,
            "tcpmuxHTTPConnectPort": names.RELAY_PROXY_PORT,
            "tcpmuxPassthrough": True,
            "transport": {
                "tls": tls,
                "tcpMux": _MULTIPLEXED,
                "tcpKeepalive": _KEEPALIVE_SECONDS,
                "heartbeatTimeout": _SILENCE_SECONDS,
                "maxPoolCount": 2 * _POOL,
            },
            "userConnTimeout": 10,
            "detailedErrorsToClient": False,
            "log": _LOG,
            "httpPlugins": [
                {
                    "name": "authorize",
                    "addr": f"{_LOOPBACK}:{names.RELAY_HOOK_PORT}",
                    "path": f"/{network.identity}",
                    "ops": list(_HOOK_OPERATIONS),
                }
            ],
        }
    )


def head_client_config(network: RelayNetwork, connect_secret: str) -> str:
    """The client beside the head: it offers the head, and the way to all names. The head's Ray asks the server."""
    connect = {"type": "stcp", "localIP": _LOOPBACK, "localPort": names.RELAY_PROXY_PORT}
    return _dump(
        {
            **_client(network, RelayAddress(_LOOPBACK, names.RELAY_SERVER_PORT)),
            "proxies": [_own_proxy(), {"name": _CONNECT, "secretKey": connect_secret, **connect}],
        }
    )


def worker_client_config(network: RelayNetwork, relay: RelayAddress, connect_secret: str) -> str:
    """The client of each worker in a cluster: it offers the worker, and answers Ray's CONNECT on the loopback."""
    visitor = {"type": "stcp", "bindAddr": _LOOPBACK, "bindPort": names.RELAY_PROXY_PORT}
    return _dump(
        {
            **_client(network, relay),
            "proxies": [_own_proxy()],
            "visitors": [{"name": _CONNECT, "serverName": _CONNECT, "secretKey": connect_secret, **visitor}],
        }
    )


def _client(network: RelayNetwork, server: RelayAddress) -> dict[str, Any]:
    """All nodes of a RayCluster are one user of frp, for a visitor must be the user of what it visits."""
    tls = {"serverName": network.server_name, **_tls_files(names.TLS_CERT_KEY, names.TLS_PRIVATE_KEY_KEY)}
    return {
        "serverAddr": server.host,
        "serverPort": server.port,
        "loginFailExit": False,
        "user": network.identity,
        "metadatas": {"name": _NODE, "token": _TOKEN},
        "transport": {
            "tls": tls,
            "tcpMux": _MULTIPLEXED,
            "poolCount": _POOL,
            "dialServerTimeout": _DIAL_SECONDS,
            "dialServerKeepalive": _KEEPALIVE_SECONDS,
            "heartbeatInterval": _HEARTBEAT_SECONDS,
            "heartbeatTimeout": _SILENCE_SECONDS,
        },
        "log": _LOG,
    }


def _own_proxy() -> dict[str, Any]:
    plugin = {"type": "http_proxy"}
    return {"name": _NODE, "type": "tcpmux", "multiplexer": "httpconnect", "customDomains": [_NODE], "plugin": plugin}


def _tls_files(certificate: str, private_key: str) -> dict[str, str]:
    files = {"certFile": certificate, "keyFile": private_key, "trustedCaFile": CA_KEY}
    return {option: f"{FOLDER}/{name}" for option, name in files.items()}


def _dump(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, indent=1)
