"""The environment variables from which a Ray node takes its labels and resources: zone, cluster, market type.

Ray reads them itself (docs/upstream.md, "Zone labels and resources"). The user's own values win, key by key. The Ray
autoscaler reads the RayCluster's spec and does not know these labels. Market type and accelerator come from the
ResourceFlavor that the worker cluster's Kueue assigned.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from adapter import names
from adapter.objects.location import Location, ray_labels
from adapter.objects.unstructured import Raw
from adapter.rewrite.target import Target

ZONE_ENV = "RAY_NODE_ZONE"
REGION_ENV = "RAY_NODE_REGION"
MARKET_ENV = "RAY_NODE_MARKET_TYPE"
LABELS_ENV = "RAY_OVERRIDE_LABELS"
RESOURCES_ENV = "RAY_OVERRIDE_RESOURCES"

# A task requests a zone by `resources={"zone:a": 1}`, and no node runs a million tasks at once, so this amount never
# limits it. The amount is whole, because Ray takes no fraction of a node's resource, and far below Ray's bound of 1e14
# (ray:python/ray/_private/resource_and_label_spec.py, to_resource_dict).
ZONE_AMOUNT = 1_000_000


SPOT, ON_DEMAND = "spot", "on-demand"  # ray:doc/source/ray-core/scheduling/labels.md
_MARKETS: Final[Mapping[str, Mapping[str, str]]] = {
    "karpenter.sh/capacity-type": {"spot": SPOT, "on-demand": ON_DEMAND, "reserved": ON_DEMAND},
    "eks.amazonaws.com/capacityType": {"SPOT": SPOT, "ON_DEMAND": ON_DEMAND},
    "cloud.google.com/gke-spot": {"true": SPOT},
    "cloud.google.com/gke-preemptible": {"true": SPOT},
    "kubernetes.azure.com/scalesetpriority": {"spot": SPOT, "regular": ON_DEMAND},
}
_ACCELERATORS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_MODEL = re.compile(r"[A-Z]+[0-9]+[A-Z]?")  # `A100` of NVIDIA-A100-SXM4-40GB, as Ray parses it


def with_zone(env: Sequence[Raw], target: Target) -> list[Raw]:
    """Add the zone variables to a Ray container's env; existing entries keep their position and win."""
    market = target.labels.get(names.RAY_MARKET_LABEL)
    labels = {
        **{key: value for key, value in target.labels.items() if key != names.RAY_MARKET_LABEL},
        **_unless_set(env, MARKET_ENV, {names.RAY_MARKET_LABEL: market} if market else {}),
        **_unless_set(env, ZONE_ENV, {names.RAY_ZONE_LABEL: target.zone}),
        **_unless_set(env, REGION_ENV, {names.RAY_REGION_LABEL: target.region} if target.region else {}),
        names.CLUSTER_LABEL: target.cluster,
    }
    resources = {**target.resources, f"zone:{target.zone}": ZONE_AMOUNT}
    result = _with_default(env, ZONE_ENV, target.zone)
    result = _with_default(result, REGION_ENV, target.region)
    result = _merge_json_env(result, LABELS_ENV, labels)
    return _merge_json_env(result, RESOURCES_ENV, resources)


def user_override_message(env: Sequence[Raw], target: Target) -> str:
    """A message on which of a Ray container's own variables win over its WorkerCluster's; empty if none does.

    It does not name the cluster, so that it is equal for all workers of a job.
    """
    overridden = [
        name
        for name, default in ((ZONE_ENV, target.zone), (REGION_ENV, target.region))
        if default and _differs_from(env, name, default)
    ]
    location = ray_labels(Location(target.zone, target.region))
    labels = {**target.labels, **location, names.CLUSTER_LABEL: target.cluster}
    overridden += _overridden_keys(env, LABELS_ENV, labels)
    overridden += _overridden_keys(env, RESOURCES_ENV, {**target.resources, f"zone:{target.zone}": ZONE_AMOUNT})
    if not overridden:
        return ""
    return (
        f"The worker template sets {', '.join(overridden)}, which overrides the values of their WorkerCluster on its "
        "Ray nodes; remove it to label the nodes by where they run."
    )


def _differs_from(env: Sequence[Raw], name: str, value: str) -> bool:
    index = _env_index(env, name)
    return index is not None and env[index].get("value") != value


def _overridden_keys(env: Sequence[Raw], name: str, defaults: Mapping[str, Any]) -> list[str]:
    """The default keys that the user's object sets to other values, or the whole variable."""
    index = _env_index(env, name)
    if index is None:
        return []
    user_values = _parse_object(env[index])
    if user_values is None:
        return [name]
    return [f"{key} in {name}" for key, value in user_values.items() if key in defaults and value != defaults[key]]


def _env_index(env: Sequence[Raw], name: str) -> int | None:
    """The index of the last entry of that name, which the container gets; None if there is none."""
    indexes = [index for index, entry in enumerate(env) if entry.get("name") == name]
    return indexes[-1] if indexes else None


def _unless_set(env: Sequence[Raw], name: str, labels: dict[str, str]) -> dict[str, str]:
    # RAY_OVERRIDE_LABELS wins over --labels and RAY_NODE_ZONE (ray:python/ray/_private/resource_and_label_spec.py,
    # _resolve_labels), so it must not hold a zone that the user set by RAY_NODE_ZONE.
    return labels if _env_index(env, name) is None else {}


def _with_default(env: Sequence[Raw], name: str, value: str) -> list[Raw]:
    missing = value and _env_index(env, name) is None
    return [*env, {"name": name, "value": value}] if missing else list(env)


def _merge_json_env(env: Sequence[Raw], name: str, defaults: Mapping[str, Any]) -> list[Raw]:
    """Add `defaults` to the JSON object of a variable; a reference, or a value of another type, stays as it is."""
    index = _env_index(env, name)
    if index is None:
        return [*env, {"name": name, "value": _dump_sorted(defaults)}]
    user_values = _parse_object(env[index])
    if user_values is None:
        return list(env)
    return [*env[:index], {**env[index], "value": _dump_sorted({**defaults, **user_values})}, *env[index + 1 :]]


def _parse_object(entry: Raw) -> dict[str, Any] | None:
    try:
        value = json.loads(entry.get("value") or ("null" if "valueFrom" in entry else "{}"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _dump_sorted(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)  # equal bytes after a restart


def ray_labels_of_node(node_labels: Mapping[str, str]) -> dict[str, str]:
    market = next(_market_types(node_labels), "")
    model = next(_accelerator_models(node_labels), "")
    ray_labels = {names.RAY_MARKET_LABEL: market, names.RAY_ACCELERATOR_LABEL: model}
    return {key: value for key, value in ray_labels.items() if value}


def _market_types(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key, words in _MARKETS.items():
        if market := words.get(node_labels.get(key, "")):
            yield market


def _accelerator_models(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key in _ACCELERATORS:
        words = re.split(r"[-_ ]", node_labels.get(key, "").upper())
        yield from (word for word in words if _MODEL.fullmatch(word))
