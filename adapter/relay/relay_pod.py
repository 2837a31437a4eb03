"""Changes a pod of a RayCluster so that its Ray node joins through the relay, by its name.

The pod gets its name, sidecars that start before all its other containers, and variables on every container, because
each may run a program of Ray. Ray's gRPC then asks the sidecar for every node of another cluster, and reaches nodes of
its own cluster directly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapter import names
from adapter.objects import ray_start
from adapter.objects.unstructured import Raw, key_of
from adapter.relay import frp_config, relay_objects
from adapter.relay.relay_network import HEAD, MANAGER, RelayNetwork, token_key

PROXY_ENV, NO_PROXY_ENV, ENABLE_PROXY_ENV = "grpc_proxy", "no_grpc_proxy", "RAY_grpc_enable_http_proxy"
# With Ray's own 5 a node is dead after 12 s of silence. The patience must exceed an outage by 20 s, as long as a client
# of frp may wait before it dials again.
HEALTH_CHECKS_ENV, HEALTH_CHECKS = "RAY_health_check_failure_threshold", 25
RECONNECT_ENV, RECONNECT_SECONDS = "RAY_gcs_rpc_server_reconnect_timeout_s", 120

# Their requests count into the share. A client has 5 to 10 MB, and a server up to 50 MB after gigabytes.
_CLIENT_REQUESTS: Final = {"cpu": "50m", "memory": "40Mi"}
_SERVER_REQUESTS: Final = {"cpu": "50m", "memory": "64Mi"}
_HOOK_REQUESTS: Final = {"cpu": "10m", "memory": "24Mi"}
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,  # also in a pod of user 0
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CLIENT_FILES: Final = (
    frp_config.CA_KEY,
    names.TLS_CERT_KEY,
    names.TLS_PRIVATE_KEY_KEY,
    frp_config.CLIENT_CONFIG_KEY,
)
_SERVER_FILES: Final = (
    frp_config.SERVER_CERT_KEY,
    frp_config.SERVER_PRIVATE_KEY_KEY,
    frp_config.SERVER_CONFIG_KEY,
    relay_objects.HOOK_KEY,
    relay_objects.NAMES_KEY,
    relay_objects.CONNECT_KEY,
    relay_objects.NODES_KEY,
)


@dataclass(frozen=True, slots=True)
class _Node:
    """A Ray node in the relayed network."""

    network: RelayNetwork
    hostname: str
    cluster: str
    image: str
    secret: str

    @property
    def name(self) -> str:
        return self.network.node_name(self.hostname, self.cluster)


def worker_pod(pod: Raw, network: RelayNetwork, cluster: str, image: str) -> dict[str, Any]:
    """A remote pod as a node of the network; its hostname is its own name."""
    name = key_of(pod)[1]
    node = _Node(network, name, cluster, image, network.worker_secret(name))
    return {**pod, "spec": _node_spec(pod.get("spec") or {}, node, [_client(node)], _CLIENT_FILES)}


def counted_template(template: Raw, image: str) -> dict[str, Any]:
    """A worker's template with the sidecar as far as quota counts it."""
    spec = template.get("spec") or {}
    containers = [_counted_sidecar(image), *(spec.get("initContainers") or ())]
    return {**template, "spec": {**spec, "initContainers": containers}}


def is_counted(template: Raw) -> bool:
    """Whether a worker's template has the sidecar."""
    return any(map(is_counted_sidecar, (template.get("spec") or {}).get("initContainers") or ()))


def is_counted_sidecar(container: Raw) -> bool:
    """Whether a container is the one of `counted_template`, and no user's of that name."""
    return {**container, "image": ""} == _counted_sidecar("")


def _counted_sidecar(image: str) -> dict[str, Any]:
    return {
        "name": names.RELAY_CLIENT,
        "image": image,
        "restartPolicy": "Always",
        "resources": {"requests": dict(_CLIENT_REQUESTS)},
        "securityContext": dict(_SECURITY),
    }


def head_spec(spec: Raw, network: RelayNetwork, image: str, own_services: Sequence[str] = ()) -> dict[str, Any]:
    """The spec of a head's pod; `own_services` are the names of its Services, which its own cluster reaches."""
    node = _Node(network, HEAD, MANAGER, image, network.secret)
    sidecars = [_hook(node), _server(node), _client(node)]
    return _node_spec(spec, node, sidecars, (*_CLIENT_FILES, *_SERVER_FILES), own_services)


def _node_spec(
    spec: Raw, node: _Node, sidecars: Sequence[Raw], files: Sequence[str], direct: Sequence[str] = ()
) -> dict[str, Any]:
    variables = _proxy_variables(node, direct)
    inits, containers = (
        [_with_node_address(_with_variables(container, variables), node.name) for container in spec.get(kind) or ()]
        for kind in ("initContainers", "containers")
    )
    items = [{"key": key, "path": key} for key in files]
    volume = {"name": names.RELAY_VOLUME, "secret": {"secretName": node.secret, "items": items}}
    return {
        **spec,
        "hostname": node.hostname,
        "subdomain": node.network.node_service(node.cluster),
        "initContainers": [*sidecars, *inits],
        "containers": containers,
        "volumes": [*(spec.get("volumes") or ()), volume],
    }


def _proxy_variables(node: _Node, direct: Sequence[str]) -> dict[str, str]:
    """Without the pod's own IP among the direct addresses, a driver that joins 127.0.0.1 hangs."""
    domain = node.network.node_domain(node.cluster)
    return {
        ENABLE_PROXY_ENV: "1",
        PROXY_ENV: f"http://127.0.0.1:{names.RELAY_PROXY_PORT}",
        NO_PROXY_ENV: ",".join((f".{domain}", *direct, f"$({names.POD_IP_ENV})", "127.0.0.1", "localhost")),
    }


def _with_variables(container: Raw, variables: Mapping[str, str]) -> dict[str, Any]:
    """The container with the variables instead of its own of these names. The pod's IP comes before its use.

    Addresses that its user excludes from a proxy of gRPC stay excluded.
    """
    replaced = {names.POD_IP_ENV, *variables}
    excluded = [entry["value"] for entry in container.get("env") or () if _has_text(entry, NO_PROXY_ENV)]
    own = [entry for entry in container.get("env") or () if entry.get("name") not in replaced]
    address = {"name": names.POD_IP_ENV, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    texts = {**variables, NO_PROXY_ENV: ",".join((variables[NO_PROXY_ENV], *excluded))}
    added = [{"name": name, "value": value} for name, value in texts.items()]
    patient = _with_least(_with_least(own, HEALTH_CHECKS_ENV, HEALTH_CHECKS), RECONNECT_ENV, RECONNECT_SECONDS)
    return {**container, "env": [address, *patient, *added]}


def _has_text(entry: Raw, name: str) -> bool:
    """Whether a variable has this name and a text, and no reference."""
    return entry.get("name") == name and bool(entry.get("value")) and isinstance(entry["value"], str)


def _with_least(env: Sequence[Raw], name: str, least: int) -> list[Raw]:
    """The env with a variable that is at least so high; a user's higher number stays, and so does a reference."""
    own = [entry for entry in env if entry.get("name") == name]
    if own and ("valueFrom" in own[-1] or _parse_number(own[-1].get("value")) >= least):
        return list(env)
    return [*(entry for entry in env if entry.get("name") != name), {"name": name, "value": str(least)}]


def _parse_number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _with_node_address(container: dict[str, Any], name: str) -> dict[str, Any]:
    """The container whose `ray start` names the node, also where its script takes the command from a variable.

    KubeRay gives the command in KUBERAY_GEN_RAY_START_CMD to containers with a script of their own.
    """
    words = {
        key: [ray_start.set_node_address(word, name) if isinstance(word, str) else word for word in container[key]]
        for key in ("command", "args")
        if container.get(key)
    }
    env = [
        {**entry, "value": ray_start.set_node_address(entry["value"], name)}
        if isinstance(entry.get("value"), str)
        else entry
        for entry in container["env"]
    ]
    return {**container, **words, "env": env}


def _client(node: _Node) -> dict[str, Any]:
    token = {"name": node.secret, "key": token_key(node.hostname)}
    env: list[Raw] = [
        {"name": frp_config.NODE_ENV, "value": node.name},
        {"name": frp_config.TOKEN_ENV, "valueFrom": {"secretKeyRef": token}},
    ]
    command = ["frpc", "-c", f"{frp_config.FOLDER}/{frp_config.CLIENT_CONFIG_KEY}"]
    return _sidecar(names.RELAY_CLIENT, node.image, command, _CLIENT_REQUESTS, env)


def _server(node: _Node) -> dict[str, Any]:
    command = ["frps", "-c", f"{frp_config.FOLDER}/{frp_config.SERVER_CONFIG_KEY}"]
    return _sidecar(names.RELAY_SERVER, node.image, command, _SERVER_REQUESTS)


def _hook(node: _Node) -> dict[str, Any]:
    facts = [node.network.identity, node.name, str(names.RELAY_HOOK_PORT), frp_config.FOLDER]
    command = ["python3", f"{frp_config.FOLDER}/{relay_objects.HOOK_KEY}", *facts]
    return _sidecar(names.RELAY_HOOK, node.image, command, _HOOK_REQUESTS)


def _sidecar(
    name: str, image: str, command: Sequence[str], requests: Mapping[str, str], env: Sequence[Raw] = ()
) -> dict[str, Any]:
    """A native sidecar: it starts before the init containers behind it, and outlives the containers."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": list(command),
        "env": list(env),
        "resources": {"requests": dict(requests)},
        "securityContext": dict(_SECURITY),
        "volumeMounts": [{"name": names.RELAY_VOLUME, "mountPath": frp_config.FOLDER, "readOnly": True}],
    }
