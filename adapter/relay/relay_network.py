"""The names in the relayed network of one RayCluster. Ray's nodes know each other by these instead of IPs.

A node's name resolves in its own cluster only, by its hostname, its subdomain and a headless Service. Elsewhere it does
not resolve, so a socket of a user's own fails at once instead of hanging. Ray's gRPC reaches it through a proxy, which
takes names.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, key_of, label, mapping_field, mapping_list, text_field
from adapter.objects.worker_pod import slot_cluster

CLUSTER_DOMAIN: Final = "svc.cluster.local"
SERVER_DOMAIN: Final = "relay"  # what the router looks for in a ClientHello
HEAD: Final = "head"  # the hostname of the head's pod, and the beginning of its token's key
MANAGER: Final = ""  # instead of a WorkerCluster's name: the head's cluster
_PREFIX: Final = "rayspan-relay"
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HASH_LENGTH: Final = 10
_IDENTITY_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class RelayNetwork:
    """One RayCluster that needs the relay."""

    identity: str  # of lower-case letters and digits: who knows it may dial the head's server
    namespace: str

    @property
    def server_name(self) -> str:
        """The name of the head's server, in its certificate and in each ClientHello."""
        return f"{self.identity}.{SERVER_DOMAIN}"

    @property
    def secret(self) -> str:
        """The head's Secret."""
        return f"{_PREFIX}-{self.identity}"

    def worker_secret(self, pod: str) -> str:
        """The Secret of a worker's pod. So no worker's account of the cluster has another's token beside its own."""
        return f"{self.secret}-{pod}"

    @property
    def router_service(self) -> str:
        """The Service by which routers find the head; in their namespace, so that they reach nothing else."""
        return router_service(self.identity)

    @property
    def head_node(self) -> str:
        return self.node_name(HEAD, MANAGER)

    def node_service(self, cluster: str) -> str:
        """The headless Service of the nodes in a cluster.

        A cluster's name may have dots, and be too long for a label of DNS.
        """
        service = f"{_PREFIX}-{self.identity}-{cluster}".removesuffix("-")
        if _DNS_LABEL.fullmatch(service):
            return service
        return f"{_PREFIX}-{self.identity}-{hashlib.sha256(cluster.encode()).hexdigest()[:_HASH_LENGTH]}"

    def node_domain(self, cluster: str) -> str:
        """What the names of all nodes in a cluster end with."""
        return f"{self.node_service(cluster)}.{self.namespace}.{CLUSTER_DOMAIN}"

    def node_name(self, pod: str, cluster: str) -> str:
        return f"{pod}.{self.node_domain(cluster)}"

    def node_of_pod(self, pod: Raw) -> str:
        """The name of the node that a manager pod stands for: the head's, or a worker's in its slot's cluster."""
        if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD:
            return self.head_node
        return self.node_name(key_of(pod)[1], slot_cluster(pod))


def has_server(head: Raw) -> bool:
    """Whether a head's pod has the server; the component's policy gives it one."""
    containers = mapping_list(mapping_field(head, "status"), "initContainerStatuses")
    return any(text_field(container, "name") == names.RELAY_SERVER for container in containers)


def network_of_head(head: Raw) -> RelayNetwork | None:
    """The network of which a head's pod is a node; None: its nodes know each other by IP."""
    identity = label(head, names.RELAY_LABEL)
    return RelayNetwork(identity, key_of(head)[0]) if identity and has_server(head) else None


def identity_of(gang_uid: str) -> str:
    """The identity of a gang's network; the same for all attempts, and for all slices of an elastic job."""
    return hashlib.sha256(gang_uid.encode()).hexdigest()[:_IDENTITY_LENGTH] if gang_uid else ""


def recorded_identity(updates: Iterable[Raw]) -> str:
    """The identity that podset updates give to the head's podset; empty for a gang without a relayed network."""
    labels = (update.get("labels") or {} for update in updates if update.get("name") == names.HEAD)
    return next((str(own[names.RELAY_LABEL]) for own in labels if own.get(names.RELAY_LABEL)), "")


def recorded_key(updates: Iterable[Raw]) -> str:
    """The fingerprint of the key that podset updates give to the head's podset; empty if an earlier version made it."""
    annotations = (update.get("annotations") or {} for update in updates if update.get("name") == names.HEAD)
    return next((str(own.get(names.RELAY_KEY_ANNOTATION) or "") for own in annotations), "")


def with_key(updates: Iterable[Mapping[str, Any]], fingerprint: str) -> tuple[Mapping[str, Any], ...]:
    """The podset updates with the key that the head's credentials were made from."""
    annotations = {"annotations": {names.RELAY_KEY_ANNOTATION: fingerprint}} if fingerprint else {}
    return tuple({**update, **annotations} if update.get("name") == names.HEAD else update for update in updates)


def podset_update(identity: str) -> dict[str, Any]:
    """The update of the head's podset from which the head's admission policy makes it a node of the network."""
    return {"name": names.HEAD, "labels": {names.RELAY_LABEL: identity}}


def router_service(identity: str) -> str:
    """As the router makes it of a server's name."""
    return f"rayspan-head-{identity}"


def head_services(ray_cluster: str, namespace: str) -> tuple[str, str, str]:
    """The names by which its own cluster reaches a head, as KubeRay calls its Service unless a user names it.

    Source: kuberay:controllers/ray/utils/util.go, GenerateHeadServiceName.
    """
    service = f"{ray_cluster}-head-svc"
    return service, f"{service}.{namespace}", f"{service}.{namespace}.{CLUSTER_DOMAIN}"


def node_token(names_key: str, node: str, issued_at: int = 0) -> str:
    """The token that proves a node's name to the hook of the head's server, and when it was issued.

    `names_key` in hex, `issued_at` in seconds of Unix time.
    """
    proof = hmac.new(bytes.fromhex(names_key), f"{issued_at} {node}".encode(), hashlib.sha256).hexdigest()
    return f"{issued_at}.{proof}"


def token_key(pod: str) -> str:
    """The key of a pod's token in the Secret."""
    return f"{pod}.token"
