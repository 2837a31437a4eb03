"""A relayed network on islands: its router, its credentials, and nodes that join it, with or without Ray.

It stands for those who write these objects: an administrator, the controller, and KubeRay. What is in them comes from
`adapter.relay`.
"""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adapter import names
from adapter.objects.specs import HeadSpec
from adapter.relay import relay_objects, relay_pod
from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import RelayNetwork, head_services, token_key
from adapter.relay.relay_objects import KeyPair, RelaySecrets
from adapter.relay.router_config import router_config
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.rewriter import remote_pod
from adapter.rewrite.target import Target
from hack.lab.base import commands, lock, versions
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.lab.base.paths import REPO, STATE
from hack.lab.cluster import containerd
from hack.lab.images import images
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.reader import Raw

COMPONENT = REPO / "kustomize" / "components" / "relay"
COMPONENT_NAMESPACE = names.SYSTEM_NAMESPACE
ROUTER_DEPLOYMENT = "deployment/rayspan-relay-router"
ROUTERS = "relay-routers"  # the namespace of the router, and its name
NODE_LABEL = "relayed-node"  # on each node's pod: the identity of its network
HEAD_POD = "head"
REVOKED_ANNOTATION = "relayed-node-revoked"  # on a head's pod, for the kubelet alone
_START_SECONDS = 120
# Head, submitter and routers share a node that may have two processors.
_ROUTER_REQUESTS = "cpu=20m,memory=64Mi"


def bring(lab: Lab) -> None:
    """Give all clusters of the lab the image."""
    archive = images.archive_for("relay")
    with lock.held(STATE / "lock", "waiting for another command on the lab"):
        for cluster in lab.clusters:
            containerd.bring(cluster, "relay", archive)


def start_routers(manager: Cluster) -> None:
    """Start two routers behind the manager's one port."""
    wait(lambda: not _has_open_port(manager), 120, "no other Service has the one port")
    manager.apply(_list([_namespace(ROUTERS), *_router_objects()]))
    manager.kubectl("-n", ROUTERS, "rollout", "status", f"deployment/{ROUTERS}", f"--timeout={_START_SECONDS}s")


def install_component(manager: Cluster) -> None:
    """Install the component that a user installs, and wait until its routers are ready; it may be there already."""
    wait(lambda: not _has_open_port(manager, but=COMPONENT_NAMESPACE), 120, "no other Service has the one port")
    manager.kubectl("apply", "-k", str(COMPONENT))
    manager.kubectl("-n", COMPONENT_NAMESPACE, "set", "resources", ROUTER_DEPLOYMENT, f"--requests={_ROUTER_REQUESTS}")
    manager.kubectl("-n", COMPONENT_NAMESPACE, "rollout", "status", ROUTER_DEPLOYMENT, f"--timeout={_START_SECONDS}s")


def remove_component(manager: Cluster) -> None:
    manager.kubectl("delete", "-k", str(COMPONENT), "--ignore-not-found")


def connect(lab: Lab, fleet: Clusters) -> None:
    """Install the component, and reach all worker clusters through it, as an administrator does."""
    bring(lab)
    install_component(fleet.manager)
    for name in fleet.workers:
        set_address(lab, fleet, name)


def set_address(lab: Lab, fleet: Clusters, name: str, port: int = OPEN_PORT) -> None:
    """Reach a worker cluster through the relay at this port of the manager."""
    address = f"{lab.manager.address}:{port}"
    _set_network(fleet, name, {"mode": "Relay", "address": address, "image": images.reference("relay")})


def disconnect(fleet: Clusters) -> None:
    """Undo what `connect` did, as far as it came."""
    for name in fleet.workers:
        _set_network(fleet, name, None)
    remove_component(fleet.manager)


def _set_network(fleet: Clusters, name: str, network: Mapping[str, str] | None) -> None:
    patch = json.dumps({"spec": {"network": network}})
    fleet.manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", patch)


@dataclass(frozen=True)
class RelayedCluster:
    """One RayCluster's relayed network, whose namespace has the name of its identity."""

    identity: str
    folder: Path
    manager: Cluster
    workers: Mapping[str, Cluster]
    relay: RelayAddress
    pods: dict[str, str] = field(default_factory=dict)
    """Cluster → the pod that was started there; the manager is the empty name."""
    _certificates: dict[str, KeyPair] = field(default_factory=dict)

    @property
    def network(self) -> RelayNetwork:
        return RelayNetwork(self.identity, self.identity)

    @property
    def head(self) -> str:
        return self.network.head_node

    def node(self, cluster: str) -> str:
        """The name of the node that was started in a worker cluster."""
        return self.network.node_name(self.pods[cluster], cluster)

    @cached_property
    def secrets(self) -> RelaySecrets:
        key, file = self._file("ca.key"), self._file("ca.crt")
        usage = ("-addext", "basicConstraints=critical,CA:TRUE,pathlen:0", "-addext", "keyUsage=critical,keyCertSign")
        _openssl("req", "-x509", *_KEY_OPTIONS, "-keyout", key, "-out", file, "-subj", f"/CN={self.identity}", *usage)
        return RelaySecrets(file.read_text(), secrets.token_hex(32), secrets.token_hex(16))

    def prepare(self) -> None:
        """Write the credentials, and the Services that name nodes."""
        selector = {NODE_LABEL: self.identity}
        head_secret = relay_objects.head_secret(
            self.network,
            self.secrets,
            self._certificate("server", "serverAuth", self.network.server_name),
            self._certificate("manager", "clientAuth", f"manager.{self.network.server_name}"),
        )
        service = relay_objects.head_service(self.network, selector)
        self.manager.apply(_list([_namespace(self.identity), head_secret, service]))
        for name, cluster in self.workers.items():
            certificate = self._certificate(name, "clientAuth", f"{name}.{self.network.server_name}")
            self._certificates[name] = certificate
            service = relay_objects.node_service(self.network, name, selector)
            cluster.apply(_list([_namespace(self.identity), service]))

    def set_token(self, cluster: str, pod: str, token: str = "") -> None:
        """Give a pod its Secret, with its token or another one."""
        certificate = self._certificates[cluster]
        secret = relay_objects.worker_secret(self.network, self.secrets, certificate, self.relay, cluster, pod)
        data = secret["stringData"] | ({token_key(pod): token} if token else {})
        self.workers[cluster].apply(json.dumps({**secret, "stringData": data}))

    def revoke(self, node: str) -> None:
        """Say that a node has left. A change of the pod makes the kubelet update its files at once."""
        cluster = next(name for name in self.workers if self.node(name) == node)
        nodes = relay_objects.present_nodes(self.network, 1, {cluster: []})
        data = {relay_objects.NODES_KEY: base64.b64encode(nodes.encode()).decode()}
        patch = json.dumps({"data": data})
        self._kubectl("", "patch", "secret", self.network.secret, "--type=merge", "-p", patch)
        self._kubectl("", "annotate", "pod", self.pods[""], f"{REVOKED_ANNOTATION}={node}")

    def start_head(self, container: Raw) -> None:
        """Start a head's pod without KubeRay."""
        pod = self._pod(HEAD_POD, container)
        spec = relay_pod.head_spec(pod["spec"], self.network, images.reference("relay"))
        self.manager.apply(json.dumps({**pod, "spec": spec}))
        self._lead_routers(HEAD_POD)

    def start_worker(self, cluster: str, name: str, container: Raw) -> None:
        """Start a worker's pod without KubeRay. It needs a token."""
        self._start(cluster, self._pod(name, container))

    def start_ray(self) -> None:
        """Create a RayCluster with a worker for each worker cluster. Nothing but the gate holds them in the manager."""
        self.manager.apply(json.dumps(self._ray_cluster()))
        workers = self.manager.wait(self._gated_workers, _START_SECONDS, "KubeRay has made the workers")
        for cluster, pod in zip(self.workers, workers, strict=True):
            self.set_token(cluster, pod["metadata"]["name"])
            self._start(cluster, self._remote_pod(pod, cluster))
        self._lead_routers(self.manager.wait(self._head_name, _START_SECONDS, "KubeRay has made the head"))

    def _start(self, cluster: str, pod: dict[str, Any]) -> None:
        self.pods[cluster] = pod["metadata"]["name"]
        pod = relay_pod.worker_pod(pod, self.network, cluster, images.reference("relay"))
        self.workers[cluster].apply(json.dumps(pod))

    def _lead_routers(self, head: str) -> None:
        self.pods[""] = head
        address = self.manager.wait(lambda: self._pod_ip(head), _START_SECONDS, "the head has an address")
        self.manager.apply(_list(relay_objects.router_objects(self.network, ROUTERS, address)))

    def _ray_cluster(self) -> Raw:
        """As its user writes it, except for what the relay needs in the head's template, and for the gate."""
        image = images.reference("ray")
        requests = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
        services = head_services(self.identity, self.identity)
        head = {"containers": [{"name": "ray-head", "image": image, **requests}]}
        head = relay_pod.head_spec(head, self.network, images.reference("relay"), services)
        worker = {"containers": [{"name": "ray-worker", "image": image, **requests}]}
        labels = {"metadata": {"labels": {NODE_LABEL: self.identity}}}
        group = {
            "groupName": "workers",
            **{key: len(self.workers) for key in ("replicas", "minReplicas", "maxReplicas")},
            "rayStartParams": {"num-cpus": "1"},
            "template": {**labels, "spec": {**worker, "schedulingGates": [{"name": names.GATE}]}},
        }
        head_group = {
            "rayStartParams": {"num-cpus": "0", "node-ip-address": self.head},
            "template": {**labels, "spec": head},
        }
        spec = {"rayVersion": versions.RAY, "headGroupSpec": head_group, "workerGroupSpecs": [group]}
        metadata = {"name": self.identity, "namespace": self.identity}
        return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}

    def _remote_pod(self, pod: Raw, cluster: str) -> dict[str, Any]:
        """The remote pod, without what makes Kueue and an anchor its owners."""
        head = HeadSpec.model_construct(address="Static", template=self.head)  # no administrator may write it
        target = replace(Target.without_cluster(()), cluster=cluster, zone=cluster, head=head)
        remote = remote_pod(
            pod, head=HeadAddress.from_pod(pod, ""), target=target, role="r", slot="relay", anchor_uid="relay"
        )
        metadata = {key: remote["metadata"][key] for key in ("name", "namespace")}
        return {**remote, "metadata": {**metadata, "labels": {NODE_LABEL: self.identity}}}

    def _gated_workers(self) -> list[Raw]:
        pods = self.manager.items("pods", self.identity, "ray.io/node-type=worker")
        return pods if len(pods) == len(self.workers) else []

    def _head_name(self) -> str:
        heads = self.manager.items("pods", self.identity, "ray.io/node-type=head")
        return str(heads[0]["metadata"]["name"]) if heads else ""

    def await_ready(self, cluster: str, seconds: float = _START_SECONDS) -> None:
        place, name = self._cluster(cluster), self.pods[cluster]
        place.wait(
            lambda: condition(place.get("pods", name, self.identity), "Ready").get("status") == "True",
            seconds,
            f"pod {name} of {self.identity} is ready",
            lambda: self._kubectl(cluster, "logs", name, "--all-containers", "--tail=20"),
        )

    def run(self, cluster: str, program: str, *words: str, container: str = "") -> str:
        """What a Python program prints in the main container of a cluster's pod, or in another one."""
        place = ("-c", container) if container else ()
        return self._kubectl(cluster, "exec", self.pods[cluster], *place, "--", "python3", "-c", program, *words)

    @property
    def hook_log(self) -> list[str]:
        return self._kubectl("", "logs", self.pods[""], "-c", names.RELAY_HOOK).splitlines()

    def remove(self) -> None:
        for cluster in (self.manager, *self.workers.values()):
            cluster.kubectl("delete", "namespace", self.identity, "--ignore-not-found", "--wait=false")

    def _cluster(self, name: str) -> Cluster:
        return self.workers[name] if name else self.manager

    def _kubectl(self, cluster: str, *words: str) -> str:
        return self._cluster(cluster).kubectl("-n", self.identity, *words)

    def _pod(self, name: str, container: Raw) -> dict[str, Any]:
        spec = {
            "containers": [container],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
        }
        metadata = {"name": name, "namespace": self.identity, "labels": {NODE_LABEL: self.identity}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _pod_ip(self, name: str) -> str:
        return str((self.manager.get("pods", name, self.identity).get("status") or {}).get("podIP") or "")

    def _certificate(self, name: str, usage: str, host: str) -> KeyPair:
        self.secrets  # noqa: B018  # the authority signs
        key, file, request = self._file(f"{name}.key"), self._file(f"{name}.crt"), self._file("request")
        extensions = self._file("extensions")
        extensions.write_text(f"extendedKeyUsage={usage}\nsubjectAltName=DNS:{host}\n")
        _openssl("req", "-new", *_KEY_OPTIONS, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        authority = ("-CA", self._file("ca.crt"), "-CAkey", self._file("ca.key"), "-days", "2")
        _openssl("x509", "-req", "-in", request, *authority, "-extfile", extensions, "-out", file)
        return KeyPair(file.read_text(), key.read_text())

    def _file(self, name: str) -> Path:
        place = self.folder / self.identity
        place.mkdir(exist_ok=True)
        return place / name


_KEY_OPTIONS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    commands.run(["openssl", *words])


def _has_open_port(manager: Cluster, but: str = "") -> bool:
    """Whether a Service has the port, outside the namespace `but`."""
    services = (service for service in manager.items("services") if service["metadata"]["namespace"] != but)
    return any(port.get("nodePort") == OPEN_PORT for one in services for port in one["spec"].get("ports") or ())


def _router_objects() -> list[Raw]:
    labels = {"app": ROUTERS}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"router.cfg": router_config(ROUTERS)}}
    container = {
        "name": "router",
        "image": images.reference("relay"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["haproxy", "-W", "-db", "-f", "/config/router.cfg"],
        "readinessProbe": {"tcpSocket": {"port": names.RELAY_ROUTER_PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": ROUTERS}}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    service = {
        "type": "NodePort",
        "externalTrafficPolicy": "Local",
        "selector": labels,
        "ports": [{"port": names.RELAY_ROUTER_PORT, "nodePort": OPEN_PORT}],
    }
    metadata = {"metadata": {"name": ROUTERS, "namespace": ROUTERS}}
    return [
        {**config, **metadata},
        {"apiVersion": "apps/v1", "kind": "Deployment", **metadata, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", **metadata, "spec": service},
    ]


def _namespace(name: str) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _list(objects: Sequence[Raw]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
