"""Gives the extended resources that a pod requests their names in the worker cluster.

This is the only place that does so. `pod_mapping` calls it for remote pods, dry runs, shares and plans alike, so what
is counted, reserved and requested there has the same names.
"""

from collections.abc import Mapping
from typing import Any

from adapter.objects.pod_requests import UNLIMITED, parse_quantity
from adapter.objects.unstructured import Raw


def rename_resources(spec: Raw, names: Mapping[str, str]) -> Raw:
    """The pod spec with the names of the worker cluster; amounts of one container that get one name are added."""
    renamed = {
        kind: [_rename_in(container, names) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if names and spec.get(kind)
    }
    return {**spec, **renamed} if any(renamed[kind] != spec[kind] for kind in renamed) else spec


def requested_names(spec: Raw, names: Mapping[str, str]) -> dict[str, str]:
    """Those of the names that rename something in a pod spec."""
    if not names:
        return {}
    resources = [
        container.get("resources") or {}
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
    ]
    requested = {name for each in resources for kind in ("limits", "requests") for name in each.get(kind) or {}}
    return {name: renamed for name, renamed in names.items() if name in requested}


def _rename_in(container: Raw, names: Mapping[str, str]) -> Raw:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if names.keys().isdisjoint({*limits, *requests}):
        return container
    # Kubernetes defaults a request to its limit. It must know both before they are added to another resource.
    targets = frozenset(names.values())
    implied = {name: amount for name, amount in limits.items() if names.get(name, name) in targets}
    changed = {"limits": _rename_all(limits, names), "requests": _rename_all({**implied, **requests}, names)}
    filled = {kind: amounts for kind, amounts in changed.items() if amounts}
    return {**container, "resources": {**resources, **filled}}


def _rename_all(amounts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed = dict[str, Any]()
    for name, amount in amounts.items():
        target = names.get(name, name)
        renamed[target] = _sum_of(renamed[target], amount, target) if target in renamed else amount
    return renamed


def _sum_of(amount: Any, other: Any, name: str) -> Any:
    """The sum of two amounts of an extended resource, which are whole numbers; the first one if one is no quantity."""
    try:
        return str(min(parse_quantity(amount, name) + parse_quantity(other, name), UNLIMITED))
    except ValueError:  # the API server denies such a pod
        return amount
