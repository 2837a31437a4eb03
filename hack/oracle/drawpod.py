"""The flavors of all trees, a fixed catalogue, and pod specs drawn at random. Pure.

The catalogue is fixed because all trees share the flavors: quota is counted per tree, and a flavor has no state. What
the objects of a worker cluster do not show is not drawn: topologies, LimitRanges, RuntimeClasses and device claims.
"""

from collections.abc import Collection
from random import Random
from typing import Final

from adapter.objects.unstructured import RawDict as Raw

GPU: Final = "example.com/gpu"
# What a flavor may do to a pod: nothing, require labels, exclude it by a hard taint of either kind, by one that it
# tolerates itself, by one that compares as a number, or only discourage it by a soft one.
FLAVORS: Final[dict[str, Raw]] = {
    "oracle-plain": {},
    "oracle-spot": {"nodeLabels": {"tier": "spot"},
        "nodeTaints": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]},
    "oracle-big": {"nodeLabels": {"tier": "big", "cores": "8"}},
    "oracle-gpu": {"nodeLabels": {"card": "new"},
        "nodeTaints": [{"key": "card", "value": "new", "effect": "NoExecute"}]},
    "oracle-soft": {"nodeTaints": [{"key": "old", "effect": "PreferNoSchedule"}]},
    "oracle-own": {
        "nodeLabels": {"tier": "own"},
        "nodeTaints": [{"key": "own", "effect": "NoSchedule"}],
        "tolerations": [{"key": "own", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "oracle-rank": {"nodeTaints": [{"key": "rank", "value": "5", "effect": "NoSchedule"}]},
}  # fmt: skip
ABSENT: Final = "oracle-absent"  # no such flavor is ever made

# Zero is drawn on purpose: Kueue looks for a flavor for it. 100u of cpu is rounded up to a millicore, 1G is no power of
# two.
_REQUESTS: Final = {
    "cpu": ("0", "100u", "250m", "500m", "1", "1", "1500m", "2"),
    "memory": ("0", "512Mi", "1Gi", "1Gi", "2Gi", "1G", "1.5Gi"),
    GPU: ("0", "1", "1", "2"),
}
_OFTEN: Final = {
    "cpu": 0.9,
    "memory": 0.5,
    GPU: 0.4,
}  # so that most pods request several resources, and few none
_UNCOVERED: Final = 0.01  # for each resource: often enough to be tested, rare enough to waste few questions
_TOLERATIONS: Final[tuple[Raw, ...]] = (
    {"key": "spot", "value": "yes"},
    {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "spot", "value": "no"},
    {"key": "card", "operator": "Exists"},
    {"key": "card", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "rank", "operator": "Gt", "value": "4"},
    {"key": "rank", "operator": "Lt", "value": "4"},
    *({"operator": "Exists"},) * 4,  # without tolerations often nothing fits, and the numbers are not tested
)
_SELECTORS: Final[tuple[Raw, ...]] = (
    {"tier": "spot"},
    {"tier": "big"},
    {"card": "new"},
    {"tier": "big", "disk": "ssd"},
)
_EXPRESSIONS: Final[tuple[Raw, ...]] = (
    {"key": "tier", "operator": "In", "values": ["spot", "big"]},
    {"key": "tier", "operator": "NotIn", "values": ["spot"]},
    {"key": "tier", "operator": "DoesNotExist"},
    {"key": "card", "operator": "Exists"},
    {"key": "cores", "operator": "Gt", "values": ["7"]},
    {"key": "cores", "operator": "Lt", "values": ["8"]},
    {"key": "disk", "operator": "In", "values": ["ssd"]},
)


def pod_spec(dice: Random, covered: Collection[str]) -> Raw:
    """Draw a pod spec that mostly asks for resources among `covered`."""
    spec: Raw = {"containers": [_container(dice, covered, "main")], "restartPolicy": "Never"}
    if dice.random() < 0.15:
        spec["containers"].append(_container(dice, covered, "side"))
    if dice.random() < 0.2:
        spec["initContainers"] = [_init(dice, covered)]
    if dice.random() < 0.25:
        spec["nodeSelector"] = dict(dice.choice(_SELECTORS))
    if dice.random() < 0.2:
        spec["affinity"] = _affinity(dice)
    if dice.random() < 0.7:
        spec["tolerations"] = [dict(one) for one in dice.sample(_TOLERATIONS, dice.randint(1, 3))]
    return spec


def _container(dice: Random, covered: Collection[str], name: str) -> Raw:
    asked = {
        resource: dice.choice(amounts)
        for resource, amounts in _REQUESTS.items()
        if dice.random() < (_OFTEN[resource] if resource in covered else _UNCOVERED)
    }
    which = "limits" if dice.random() < 0.15 else "requests"  # a limit without a request is one
    return {"name": name, "image": "none", "resources": {which: asked}}


def _init(dice: Random, covered: Collection[str]) -> Raw:
    sidecar = {"restartPolicy": "Always"} if dice.random() < 0.5 else {}
    return _container(dice, covered, "init") | sidecar


def _affinity(dice: Random) -> Raw:
    terms = [
        {"matchExpressions": [dict(one) for one in dice.sample(_EXPRESSIONS, dice.randint(1, 2))]}
        for _ in range(dice.randint(1, 2))
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
