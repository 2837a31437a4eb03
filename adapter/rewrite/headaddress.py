"""How does a worker in another cluster find the head: every mention of the head's Service becomes what it is called there.

That is the head pod's IP or another name, by the worker cluster's `spec.head`; where the Service itself is mirrored
(servicemirror.py), nothing changes. KubeRay writes the Service's name into six places of a worker pod (args,
KUBERAY_GEN_RAY_START_CMD, RAY_ADDRESS, FQ_RAY_IP, RAY_IP, the wait-gcs-ready script: kuberay:controllers/ray/common/pod.go),
and users repeat it in their own commands and sidecars. The names are learned from the pod itself. Whether the address can
be reached is not asked here.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from adapter import names
from adapter.objects.raw import Key, Raw, label
from adapter.objects.specs import Head

FQDN_ENV = "FQ_RAY_IP"
SHORT_ENV = "RAY_IP"  # KubeRay: the FQDN's first label (ExtractRayIPFromFQDN)
PORT_ENV = "RAY_PORT"  # the port of the head's GCS
CLUSTER_SET = "svc.clusterset.local"  # the zone of the Multi-Cluster Services API (KEP-1645)
_DEFAULT_SUFFIX = "-head-svc"  # KubeRay: GenerateHeadServiceName, unless headService names it otherwise

_BEFORE = r"(?<![A-Za-z0-9_.-])"  # else `my-raycluster-head-svc`, another cluster's head, would change too
_AFTER = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"  # else `raycluster-head-svc.other-namespace` would
_PORT = r":(?=[0-9$%{])"  # `:6379`, `:$RAY_PORT`, `:%d`, `:{port}`; never the colon of `head: up`
_PORT_FOLLOWS = re.compile(_PORT)

Relocation = Callable[[Any], Any]


class Address(NamedTuple):
    """What a worker dials: `host` in place of the Service's names, empty to leave them as they are; `port` in place of the
    GCS's, empty to leave that."""

    host: str
    port: str = ""


def service(pod: Raw) -> Key | None:
    """Namespace and name of the head's Service by the worker pod's own env; None when it names none of this namespace's."""
    name, namespace, *_ = *_fqdn(pod).split("."), "", ""
    own = (pod.get("metadata") or {}).get("namespace")
    return (namespace, name) if name and namespace == own else None


def seen_from(how: Head, pod: Raw, head: str) -> Address:
    """Say what the workers of a cluster dial; `head` is the head pod's IP."""
    name, namespace, *_ = *_fqdn(pod).split("."), "", ""
    match how.address:
        case "PodIP":
            return Address(head)
        case "ServiceMirror":
            return Address("")
        case "ClusterSet":
            return Address(f"{name}.{namespace}.{CLUSTER_SET}")
        case "Static":
            words = {"service": name, "namespace": namespace, "cluster": label(pod, names.RAY_GCS_CLUSTER_LABEL)}
            return Address(*how.template.format_map(words).split(":"))


def relocation(pod: Raw, head: Address) -> Relocation:
    """Give the function that puts the address in place of the head Service's names in any JSON value.

    Untouched sub-trees come back as the same objects. An IPv6 address gets brackets where a port or a URL needs them.
    A pod whose FQ_RAY_IP is already an address, or which has none, is left alone.
    """
    pattern = _pattern(_fqdn(pod), _env(pod, PORT_ENV) if head.port else "")
    if not pattern or not head.host:
        return lambda value: value

    def put(match: re.Match[str]) -> str:
        text, start, end = match.string, match.start(), match.end()
        if match["port"]:
            return f"{head.host}:{head.port}"
        needs_brackets = ":" in head.host and (text.endswith("://", 0, start) or _PORT_FOLLOWS.match(text, end))
        return f"[{head.host}]" if needs_brackets else head.host

    return lambda value: _walk(value, lambda text: pattern.sub(put, text))


def head_env(env: Raw, pod: Raw, head: Address) -> Raw:
    """Set FQ_RAY_IP and RAY_IP where they hold the Service's names, which may be plain words, and RAY_PORT to the port."""
    fqdn = _fqdn(pod)
    before = {FQDN_ENV: fqdn, SHORT_ENV: fqdn.split(".")[0], PORT_ENV: _env(pod, PORT_ENV)}
    name = env.get("name") or ""
    after = head.port if name == PORT_ENV else head.host
    known = before.get(name)
    return {**env, "value": after} if known and after and env.get("value") == known else env


def _fqdn(pod: Raw) -> str:
    """The head Service's full name by the ray container's own env; empty when it has none or has an address."""
    found = _env(pod, FQDN_ENV)
    return "" if _is_address(found) else found


def _env(pod: Raw, name: str) -> str:
    """The value of an env variable that the ray container sees; empty when it has none."""
    containers: Sequence[Raw] = (pod.get("spec") or {}).get("containers") or ({},)
    # The last entry of a name is the one that the container sees, and KubeRay appends its own after the user's.
    values = [env.get("value") or "" for env in containers[0].get("env") or () if env.get("name") == name]
    return values[-1] if values else ""


def _pattern(fqdn: str, port: str) -> re.Pattern[str] | None:
    """Match each form of the Service's name that resolves in the manager's namespace, and no part of a longer one; and
    the port behind it, where one is given."""
    follows = rf"(?P<port>:{re.escape(port)}(?![0-9]))?" if port else "(?P<port>)"
    return re.compile(rf"(?:{'|'.join(_forms(fqdn))}){follows}") if fqdn else None


def _forms(fqdn: str) -> Iterator[str]:
    labels = fqdn.split(".")
    plain_word = not labels[0].endswith(_DEFAULT_SUFFIX)
    for count in sorted({len(labels), 3, 2, 1} & set(range(len(labels) + 1)), reverse=True):
        name = re.escape(".".join(labels[:count]))
        # A head Service may be named `ray`: replacing that word wherever it stands would break `ray start`.
        if plain_word and count < min(3, len(labels)):
            yield rf"(?<=://){name}{_AFTER}"
            yield rf"(?<![A-Za-z0-9_./-]){name}(?={_PORT})"
        else:
            yield rf"{_BEFORE}{name}{_AFTER}"


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        new: Any = {key: _walk(item, change) for key, item in value.items()}
        return new if any(new[key] is not value[key] for key in new) else value
    if isinstance(value, list):
        items = [_walk(item, change) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
