"""What does Ray learn of the nodes that a worker cluster's Kueue chose: their market type and their accelerator.

Read off the node labels of the ResourceFlavor that was assigned, by the names that clouds and device plugins give them. Ray
looks for an accelerator by itself when it starts; what is said here agrees with it, and is there before that. A flavor that
names neither says nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from adapter import names

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


def ray_labels(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The Ray labels of nodes with these labels; empty where nothing is known."""
    market = next(_markets(node_labels), "")
    model = next(_models(node_labels), "")
    found = {names.RAY_MARKET_LABEL: market, names.RAY_ACCELERATOR_LABEL: model}
    return {key: value for key, value in found.items() if value}


def _markets(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key, words in _MARKETS.items():
        if found := words.get(node_labels.get(key, "")):
            yield found


def _models(node_labels: Mapping[str, str]) -> Iterator[str]:
    for key in _ACCELERATORS:
        words = re.split(r"[-_ ]", node_labels.get(key, "").upper())
        yield from (word for word in words if _MODEL.fullmatch(word))
