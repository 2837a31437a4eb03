"""What does Ray learn of the place where a worker runs: labels and a resource, by environment variables alone?

The start command stays as it is: Ray reads all of these itself (docs/upstream.md, "Zone labels and resources"). What a
user has set wins, key by key. The Ray autoscaler, which reads the RayCluster's spec, knows nothing of them. Of the nodes that a
worker cluster's Kueue chose it learns the market type and the accelerator, read off the node labels of the assigned
ResourceFlavor by the names that clouds and device plugins give them; a flavor that names neither says nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.rewrite.target import Target

ZONE_ENV = "RAY_NODE_ZONE"
REGION_ENV = "RAY_NODE_REGION"
MARKET_ENV = "RAY_NODE_MARKET_TYPE"
LABELS_ENV = "RAY_OVERRIDE_LABELS"
RESOURCES_ENV = "RAY_OVERRIDE_RESOURCES"

# A task asks for a zone by `resources={"zone:a": 1}`, and the zone must never be what a node runs out of: no node runs a
# million tasks at once. Whole, because Ray takes no fraction of a node's resource, and far below its bound of 1e14
# (ray:python/ray/_private/resource_and_label_spec.py, to_resource_dict).
ZONE_AMOUNT = 1_000_000


SPOT, ON_DEMAND = "spot", "on-demand"  # Ray's own words (ray:doc/source/ray-core/scheduling/labels.md)
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
_MODEL = re.compile(r"[A-Z]+[0-9]+[A-Z]?")  # `A100` of NVIDIA-A100-SXM4-40GB, as Ray reads it off the device's name


def with_zone(env: Sequence[Raw], target: Target) -> list[Raw]:
    """Add the place to a ray container's env; entries that are there already keep their position and win."""
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
    """Say in a sentence which of a ray container's own variables win over what its place would give it; empty when none does.

    The cluster is not named, so that workers of one job say the same wherever they go.
    """
    found = [
        name
        for name, ours in ((ZONE_ENV, target.zone), (REGION_ENV, target.region))
        if ours and _differs_from(env, name, ours)
    ]
    region = {names.RAY_REGION_LABEL: target.region} if target.region else {}
    labels = {**target.labels, names.RAY_ZONE_LABEL: target.zone, **region, names.CLUSTER_LABEL: target.cluster}
    found += _overridden_keys(env, LABELS_ENV, labels)
    found += _overridden_keys(env, RESOURCES_ENV, {**target.resources, f"zone:{target.zone}": ZONE_AMOUNT})
    if not found:
        return ""
    return (
        f"The worker template sets {', '.join(found)}, so its Ray nodes have that in place of what their WorkerCluster says; "
        "leave it out to have them labelled by where they run."
    )


def _differs_from(env: Sequence[Raw], name: str, value: str) -> bool:
    at = _env_index(env, name)
    return at is not None and env[at].get("value") != value


def _overridden_keys(env: Sequence[Raw], name: str, defaults: Mapping[str, Any]) -> list[str]:
    """The keys of ours that the user's object sets otherwise, or the variable as a whole where it is no object."""
    at = _env_index(env, name)
    if at is None:
        return []
    theirs = _parse_object(env[at])
    if theirs is None:
        return [name]
    return [f"{key} in {name}" for key, value in theirs.items() if key in defaults and value != defaults[key]]


def _env_index(env: Sequence[Raw], name: str) -> int | None:
    """Where the entry stands that the container sees: the last one of that name."""
    found = [index for index, entry in enumerate(env) if entry.get("name") == name]
    return found[-1] if found else None


def _unless_set(env: Sequence[Raw], name: str, labels: dict[str, str]) -> dict[str, str]:
    # Ray lets RAY_OVERRIDE_LABELS win over --labels and RAY_NODE_ZONE (same file, _resolve_labels), so a zone that the
    # user chose by RAY_NODE_ZONE must not be in ours.
    return labels if _env_index(env, name) is None else {}


def _with_default(env: Sequence[Raw], name: str, value: str) -> list[Raw]:
    missing = value and _env_index(env, name) is None
    return [*env, {"name": name, "value": value}] if missing else list(env)


def _merge_json_env(env: Sequence[Raw], name: str, defaults: Mapping[str, Any]) -> list[Raw]:
    """Merge our object under the user's; what is no JSON object (or comes from elsewhere) stays the user's alone."""
    at = _env_index(env, name)
    if at is None:
        return [*env, {"name": name, "value": _dump_sorted(defaults)}]
    theirs = _parse_object(env[at])
    if theirs is None:
        return list(env)
    return [*env[:at], {**env[at], "value": _dump_sorted({**defaults, **theirs})}, *env[at + 1 :]]


def _parse_object(entry: Raw) -> dict[str, Any] | None:
    try:
        value = json.loads(entry.get("value") or ("null" if "valueFrom" in entry else "{}"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _dump_sorted(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)  # sorted: the same pod must give the same bytes after a restart


def ray_labels_of_node(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The Ray labels of nodes with these labels; empty where nothing is known."""
    market = next(_market_types(node_labels), "")
    model = next(_accelerator_models(node_labels), "")
    found = {names.RAY_MARKET_LABEL: market, names.RAY_ACCELERATOR_LABEL: model}
    return {key: value for key, value in found.items() if value}


def _market_types(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key, words in _MARKETS.items():
        if found := words.get(node_labels.get(key, "")):
            yield found


def _accelerator_models(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key in _ACCELERATORS:
        words = re.split(r"[-_ ]", node_labels.get(key, "").upper())
        yield from (word for word in words if _MODEL.fullmatch(word))
