"""Which nodes could hold a pod, how many of it, and the sentence when they cannot."""

from typing import Any

import pytest

from adapter.quota import nodes
from adapter.quota.flavor import Flavor

Raw = dict[str, Any]
GPU = {"nvidia.com/gpu": 1, "pods": 1}
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(
    name: str = "n",
    *,
    gpus: str | None = "2",
    ready: bool = True,
    cordoned: bool = False,
    taints: Any = (),
    **labels: str,
) -> Raw:
    devices = {"nvidia.com/gpu": gpus} if gpus is not None else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": cordoned, "taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "4", "pods": "110", **devices},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def affinity(key: str, operator: str, *values: str) -> Raw:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


@pytest.mark.parametrize(
    ("objects", "spec", "flavors", "want", "why"),
    [
        pytest.param([node(), node()], {}, [], 4, "its nodes can hold 4", id="all together"),
        pytest.param([], {}, [], 0, "it has no ready node", id="none"),
        pytest.param([node(ready=False)], {}, [], 0, "it has no ready node", id="not ready"),
        pytest.param([node(cordoned=True)], {}, [], 0, "it has no ready node", id="cordoned"),
        pytest.param([node(gpus="many")], {}, [], 0, "it has no ready node", id="unreadable"),
        pytest.param(
            [node(gpus="0"), node(gpus=None)], {}, [], 0,
            "no node there has allocatable nvidia.com/gpu: is its device plugin ready?", id="no device",
        ),
        pytest.param([node(zone="a"), node(zone="b")], {"nodeSelector": {"zone": "b"}}, [], 2, "its nodes can hold 2", id="selector"),
        pytest.param(
            [node()], {"nodeSelector": {"zone": "b"}}, [], 0,
            "none of its 1 ready nodes matches the worker's node selector, affinity and tolerations", id="no such label",
        ),
        pytest.param([node(zone="a"), node(zone="b")], affinity("zone", "NotIn", "a"), [], 2, "its nodes can hold 2", id="affinity"),
        pytest.param([node(taints=[TAINT]), node()], {}, [], 2, "its nodes can hold 2", id="a taint"),
        pytest.param([node(taints=[TAINT])], {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, [], 2, "its nodes can hold 2", id="tolerated"),
        pytest.param([node(taints=[TAINT])], {}, [Flavor("f", tolerations=[{"operator": "Exists"}])], 2, "its nodes can hold 2", id="tolerated by the flavor"),
        pytest.param([node(taints=[{**TAINT, "effect": "PreferNoSchedule"}])], {}, [], 2, "its nodes can hold 2", id="a taint that only asks"),
        pytest.param([node(pool="x"), node()], {}, [Flavor("f", {"pool": "x"})], 2, "its nodes can hold 2", id="the flavor's labels"),
    ],
)  # fmt: skip
def test_hold(objects: list[Raw], spec: Raw, flavors: list[Flavor], want: int, why: str) -> None:
    assert nodes.hold(nodes.read(objects), spec, GPU, flavors, 9) == (want, why)


def test_counting_ends_where_enough_are_found() -> None:
    assert nodes.hold(nodes.read([node(), node(), node()]), {}, GPU, [], 3) == (4, "")


def test_a_machine_that_is_too_small_is_named_by_what_it_lacks() -> None:
    held = nodes.hold(nodes.read([node()]), {}, {"cpu": 8000}, [], 1)
    assert held == (0, "no node there is large enough: cpu 4 at most, one worker needs 8")
