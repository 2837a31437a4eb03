"""Rewrites the head's address in a worker pod for a worker cluster, and finds remote pods with an old address.

Every mention of the head's Service becomes the head pod's IP or another name, by the worker cluster's `spec.head`. A
mirrored Service keeps its name (service_mirror.py). KubeRay writes it into six places (args, KUBERAY_GEN_RAY_START_CMD,
RAY_ADDRESS, FQ_RAY_IP, RAY_IP, the wait-gcs-ready script: kuberay:controllers/ray/common/pod.go), and users into their
commands and sidecars.

When the head starts again with another IP, `spec.head.address` decides:

- PodIP: a remote pod with the old IP is deleted (worker/dispatch.py), and KubeRay replaces its worker.
- ServiceMirror: the mirror gets the new IP, and has no address while there is no head (worker/create_pod.py). The
  remote pods stay, unless the mirror may not be read or heads are no longer mirrored.
- ClusterSet, Static: nothing happens, because something outside Rayspan keeps the name up to date.

A WorkerCluster may change, so each remote pod records its address (`head_annotations`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from adapter import names
from adapter.objects import ray_start
from adapter.objects.service_names import is_address
from adapter.objects.specs import HeadSpec
from adapter.objects.unstructured import Key, Raw, annotation, label, meta

FQDN_ENV = "FQ_RAY_IP"
SHORT_ENV = "RAY_IP"  # the first label of FQ_RAY_IP (kuberay: ExtractRayIPFromFQDN)
PORT_ENV = "RAY_PORT"  # of the head's GCS
CLUSTER_SET = "svc.clusterset.local"  # Multi-Cluster Services API (KEP-1645)

_BEFORE = r"(?<![A-Za-z0-9_.-])"  # not in `my-raycluster-head-svc`, another cluster's head
_AFTER = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"  # nor in `raycluster-head-svc.other-namespace`
_PORT = r":(?=[0-9$%{])"  # `:6379`, `:$RAY_PORT`, `:%d`, `:{port}`; not `head: up`
_PORT_FOLLOWS = re.compile(_PORT)


@dataclass(frozen=True)
class HeadAddress:
    """The head that one worker pod joins, its names in the pod, and its address for a worker cluster."""

    ip: str = ""
    fqdn: str = ""  # of the head's Service; empty if the pod names no Service, or an address
    gcs_port: str = ""  # empty when the pod has none
    namespace: str = ""  # the worker pod's
    ray_cluster: str = ""
    head_spec: HeadSpec = field(default_factory=HeadSpec)
    relay_name: str = ""  # the head's name in a relayed network, by which all its workers join

    @classmethod
    def from_pod(cls, pod: Raw, ip: str) -> Self:
        """Read a worker pod of the manager; `ip` is empty while the head pod has none."""
        containers: Sequence[Raw] = (pod.get("spec") or {}).get("containers") or ({},)
        # The last entry of a name wins, and KubeRay appends its own.
        env = {entry.get("name"): entry.get("value") or "" for entry in containers[0].get("env") or ()}
        fqdn, namespace = env.get(FQDN_ENV, ""), meta(pod).get("namespace") or ""
        service_fqdn = "" if is_address(fqdn) else fqdn.removesuffix(".")  # absolute names end in a dot
        return cls(ip, service_fqdn, env.get(PORT_ENV, ""), namespace, label(pod, names.RAY_GCS_CLUSTER_LABEL))

    def for_cluster(self, head_spec: HeadSpec) -> Self:
        return replace(self, head_spec=head_spec)

    @property
    def service_key(self) -> Key | None:
        """The head's Service in the manager; None unless it is in the pod's own namespace."""
        name, namespace = self._name_and_namespace
        return (namespace, name) if name and namespace == self.namespace else None

    @property
    def host(self) -> str:
        """What replaces the Service's names; empty to leave the names. `port` replaces the port after them likewise."""
        return self._host_and_port[0]

    @property
    def port(self) -> str:
        return self._host_and_port[1]

    def relocate(self, value: Any) -> Any:
        """Replace the head Service's names in any JSON value by the host, and the port after them.

        Unchanged sub-trees come back as the same objects.
        """
        pattern = self._service_pattern
        return _map_strings(value, lambda text: pattern.sub(self._replacement, text)) if pattern else value

    @property
    def join_address(self) -> str:
        """Host and port that a worker joins; empty while the head has no address, or the pod names no port."""
        host, port = self.host or (self.fqdn if self.head_spec.is_mirrored else ""), self.port or self.gcs_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host and port else ""

    def rewrite_command(self, value: Any) -> Any:
        """Relocate a command in any JSON value, also where `ray start` names other Services (objects/ray_start.py)."""
        address, namespace = self.join_address, self.namespace

        def change(text: str) -> str:
            return ray_start.replace_service_addresses(text, namespace, self.fqdn, address)

        return _map_strings(self.relocate(value), change)

    def rewrite_env(self, entry: Raw) -> Raw:
        """Set FQ_RAY_IP, RAY_IP and RAY_PORT; in the first two, the Service's name may be a plain word."""
        name = entry.get("name") or ""
        before = {FQDN_ENV: self.fqdn, SHORT_ENV: self.fqdn.split(".")[0], PORT_ENV: self.gcs_port}.get(name)
        after = self.port if name == PORT_ENV else self.host
        value = (entry.get("value") or "").removesuffix(".")
        return {**entry, "value": after} if before and after and value == before else entry

    def head_annotations(self) -> dict[str, str]:
        """The annotations that `stale_address` reads; none where a moved head needs no action."""
        if self.relay_name:
            return {}
        match self.head_spec.address, self.service_key:
            case "PodIP", _:
                return {names.HEAD_IP_ANNOTATION: self.ip}
            case "ServiceMirror", (_, name):
                return {names.HEAD_IP_ANNOTATION: self.ip, names.HEAD_SERVICE_ANNOTATION: name}
            case "ServiceMirror", None:  # no mirror, so nothing follows the head
                return {names.HEAD_IP_ANNOTATION: self.ip}
        return {}

    def stale_address(self, remote_pod: Raw, *, mirrored: bool) -> str:
        """The old head address of a remote pod that must be deleted; empty when it may stay.

        `mirrored`: the mirror is readable and up to date. No remote pod is deleted before the head has an address
        again.
        """
        recorded_ip = annotation(remote_pod, names.HEAD_IP_ANNOTATION)
        follows = mirrored and annotation(remote_pod, names.HEAD_SERVICE_ANNOTATION)
        return recorded_ip if self.ip and recorded_ip != self.ip and not follows else ""

    @property
    def _name_and_namespace(self) -> tuple[str, str]:
        name, namespace, *_ = *self.fqdn.split("."), "", ""
        return name, namespace

    @cached_property
    def _host_and_port(self) -> tuple[str, str]:
        if self.relay_name:
            return self.relay_name, ""
        name, namespace = self._name_and_namespace
        match self.head_spec.address:
            case "PodIP":
                return self.ip, ""
            case "ServiceMirror":
                return "", ""
            case "ClusterSet":
                return f"{name}.{namespace}.{CLUSTER_SET}", ""
            case "Static":
                words = {"service": name, "namespace": namespace, "cluster": self.ray_cluster}
                host, _, port = self.head_spec.template.format_map(words).partition(":")
                return host, port

    @cached_property
    def _service_pattern(self) -> re.Pattern[str] | None:
        return _build_pattern(self.fqdn, self.gcs_port if self.port else "") if self.host else None

    def _replacement(self, match: re.Match[str]) -> str:
        text, start, end = match.string, match.start(), match.end()
        if match["port"]:
            return f"{self.host}:{self.port}"
        needs_brackets = ":" in self.host and (text.endswith("://", 0, start) or _PORT_FOLLOWS.match(text, end))
        return f"[{self.host}]" if needs_brackets else self.host


def _build_pattern(fqdn: str, port: str) -> re.Pattern[str] | None:
    """Match each form of the Service's name that resolves in the manager's namespace, and no part of a longer one."""
    follows = rf"(?P<port>:{re.escape(port)}(?![0-9]))?" if port else "(?P<port>)"
    return re.compile(rf"(?:{'|'.join(_name_patterns(fqdn))}){follows}") if fqdn else None


def _name_patterns(fqdn: str) -> Iterator[str]:
    labels = fqdn.split(".")
    plain_word = not labels[0].endswith(names.HEAD_SERVICE_SUFFIX)
    for count in sorted({len(labels), 3, 2, 1} & set(range(len(labels) + 1)), reverse=True):
        name = re.escape(".".join(labels[:count]))
        # A Service may be named `ray`: replacing that word everywhere would break `ray start`.
        if plain_word and count < min(3, len(labels)):
            yield rf"(?<=://){name}{_AFTER}"
            yield rf"(?<![A-Za-z0-9_./-]){name}(?={_PORT})"
        else:
            root = r"\.?" if count == len(labels) else ""  # only a whole name may be absolute
            yield rf"{_BEFORE}{name}{root}{_AFTER}"


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        new: Any = {key: _map_strings(item, change) for key, item in value.items()}
        return new if any(new[key] is not value[key] for key in new) else value
    if isinstance(value, list):
        items = [_map_strings(item, change) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
