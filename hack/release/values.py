"""The chart's values, each with its default: values.yaml and its schema are both made of them.

Names are those of Kueue's chart where that has the value. A default that the manifests have is taken from them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from adapter.cli.commands.program_commands import LOG_FORMATS
from hack.release import overlays
from hack.release.overlays import Part, Raw

MANAGER = "controllerManager"
"""Under which Kueue's chart has what is said of its Deployment."""

MULTIKUEUE_SECRETS = "multiKueue.secretNames"
METRICS_TLS = "enableMetricsTls"
KUBERAY_ACCOUNT = "kubeRay.serviceAccountName"
KUBERAY = "kuberay-operator"
"""The name that KubeRay's own chart and kustomization give to that account; the component rayservice has it."""

RELAY = "relay"
RELAY_SERVICE = "rayspan-relay"
"""The Service at the relay's one open port."""

# A dot in the name would be a pattern that matches other accounts, too: use kustomize for such a name
# (docs/serving.md).
_ACCOUNT: Raw = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_STRINGS: Raw = {"additionalProperties": {"type": "string"}}
_TYPES = {bool: "boolean", int: "integer", str: "string", dict: "object", list: "array"}


@dataclass(frozen=True)
class Value:
    """One value: its path, its description, its default, and its JSON schema."""

    name: str
    says: str
    default: object
    schema: Mapping[str, Any] = field(default_factory=dict)


def switch_of(part: Part) -> str:
    """The value that turns a component on: enableQuotaAggregator."""
    words = {"multikueue": "MultiKueue", "monitoring": "Prometheus"}.get(part.name) or part.name.title().replace(
        "-", ""
    )
    return f"enable{words}"


def values(deployment: Raw, repository: str, tag: str = "", relay_tag: str = "") -> Sequence[Value]:
    """All of them, in the order of values.yaml."""
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    policies = {"enum": ["Always", "IfNotPresent", "Never"]}
    secrets: Raw = {"items": {"type": "string", "minLength": 1}}
    own = f"{MANAGER}.manager"
    port = _relay_port()
    return (
        Value(f"{MANAGER}.replicas",
            "One leads, the others stand by. The PodDisruptionBudget leaves one, "
            "so with a single replica no node of it can be drained", spec["replicas"], {"minimum": 0}),
        Value(f"{own}.image.repository", "Where the image is", repository),
        Value(f"{own}.image.tag", "Which one; empty for the chart's appVersion", tag),
        Value(f"{own}.image.pullPolicy", "When nodes pull it", container["imagePullPolicy"], policies),
        Value(f"{own}.logLevel", "info, or debug: every look at every object", "info", {"enum": ["info", "debug"]}),
        Value(f"{own}.logFormat", "text, or json: one object a line (docs/metrics.md)", LOG_FORMATS[0],
            {"enum": [*LOG_FORMATS]}),
        Value(f"{own}.podAnnotations", "Annotations of the pods", {}, _STRINGS),
        Value(f"{own}.priorityClassName", "PriorityClass of the pods", ""),
        Value(f"{own}.resources", "docs/failures.md says how much memory a fleet needs", container["resources"]),
        Value(f"{MANAGER}.imagePullSecrets",
            "Secrets of the namespace rayspan-system for a private registry, as {name: NAME}", []),
        Value(f"{MANAGER}.serviceAccount.annotations", "Annotations of the ServiceAccount", {}, _STRINGS),
        Value(f"{MANAGER}.nodeSelector", "Labels of the nodes that may run it", {}),
        Value(f"{MANAGER}.tolerations", "Taints that the pods tolerate", []),
        Value(f"{MANAGER}.affinity", "Not on one node where there are two", pod["affinity"]),
        *(Value(switch_of(part), part.says, False) for part in overlays.COMPONENTS),
        Value(METRICS_TLS, "Metrics of the controller over TLS alone, by the Secret rayspan-metrics-certificate "
            "(docs/metrics.md).", False),
        Value(MULTIKUEUE_SECRETS,
            "For enableMultiKueue: the Secrets in kueue-system that your MultiKueueClusters name", [], secrets),
        Value(KUBERAY_ACCOUNT,
            "For enableRayservice: the ServiceAccount of KubeRay's operator, in whatever namespace it is", KUBERAY,
            _ACCOUNT),
        Value(f"{RELAY}.image.repository", "For enableRelay: where the relay's image is",
            overlays.relay_repository(repository)),
        Value(f"{RELAY}.image.tag", "Which one; empty for the chart's appVersion", relay_tag),
        Value(f"{RELAY}.service.type", "How the one port is open: NodePort, or LoadBalancer", port["type"],
            {"enum": ["NodePort", "LoadBalancer"]}),
        Value(f"{RELAY}.service.nodePort", "Its port at the nodes", port["ports"][0]["nodePort"],
            {"minimum": 1, "maximum": 65535}),
        Value(f"{RELAY}.service.annotations", "Annotations of its Service, as clouds read them for load balancers", {},
            _STRINGS),
    )  # fmt: skip


def _relay_port() -> Raw:
    """The spec of the Service at the relay's port."""
    objects = overlays.objects(overlays.RELAY, overlays.DEVELOPED)
    (service,) = (each for each in objects if each["metadata"]["name"] == RELAY_SERVICE and each["kind"] == "Service")
    return dict(service["spec"])


def file(table: Sequence[Value]) -> str:
    """values.yaml."""
    return "\n".join(
        ["# Values of the Rayspan chart; `python -m hack.release` writes this file.", *_lines(table, "", 0), ""]
    )


def schema(table: Sequence[Value]) -> str:
    """values.schema.json: Helm rejects names that are not in it, so that a typo does not pass without effect."""
    top: Raw = {"$schema": "http://json-schema.org/draft-07/schema#", **_level()}
    top["properties"]["global"] = {"type": "object"}  # the values that a parent chart hands down
    for value in table:
        *above, last = value.name.split(".")
        place = top
        for step in above:
            place = place["properties"].setdefault(step, _level())
        place["properties"][last] = {"type": _TYPES[type(value.default)], "description": value.says, **value.schema}
    return json.dumps(top, indent=2) + "\n"


def _level() -> Raw:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _lines(table: Sequence[Value], above: str, depth: int) -> Iterator[str]:
    begun: set[str] = set()
    for value in table:
        head, *below = value.name.removeprefix(above).split(".")
        if below and head not in begun:
            begun.add(head)
            inside = f"{above}{head}."
            yield f"{'  ' * depth}{head}:"
            yield from _lines([each for each in table if each.name.startswith(inside)], inside, depth + 1)
        elif not below:
            text = yaml.safe_dump({head: value.default}, sort_keys=False)
            yield from (f"{'  ' * depth}{line}" for line in (f"# -- {value.says}", *text.splitlines()))
