"""The resource requests of one pod, summed as Kubernetes sums them, in Kueue's units.

Amounts are integers: millicores for cpu, whole units (bytes, devices, pods) for everything else. Additions of a worker
cluster are not estimated here: a dry run shows LimitRange defaults, sidecars and overhead (rewrite/dry_run_pod.py).
What Kueue's configuration does to them there is learned from its answers (quota/kueue_answers.py).
"""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from adapter.objects.unstructured import printable

Resources = Mapping[str, int]  # resource name -> amount
_Nanos = dict[str, int]  # resource name -> billionths of a unit, the precision of a Quantity

CPU: Final = "cpu"
PODS: Final = "pods"
UNLIMITED: Final = 2**63 - 1  # resources.Unlimited; larger amounts are clamped to it

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Digits of a number; no real quantity has more. A longer one counts as UNLIMITED: parsing it could take seconds.
_MAX_LENGTH: Final = 64
_MAX_EXPONENT: Final = 99  # larger exponents are clamped; 64 bits end at 18


def parse_quantity(text: object, resource: str) -> int:
    """Read a Kubernetes quantity (`500m`, `1.5Gi`, `2e3`, also a bare number) as Kueue counts `resource`.

    The amount is rounded away from zero and clamped to 64 bits. Raises ValueError with a sentence if an API server
    would reject the text; it accepts `1e402`, which is UNLIMITED.
    Source: kueue pkg/resources/requests.go ResourceValue; apimachinery pkg/api/resource ParseQuantity.
    """
    return _to_kueue_units(_parse_nanos(text), resource)


def is_counted_in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def format_quantity(amount: int, resource: str) -> str:
    """Write an amount as Kueue does (`250m`, `2`, `1536Mi`); the inverse of `parse_quantity`.

    Source: kueue pkg/resources/resource_formatter.go.
    """
    if amount >= UNLIMITED:
        return "unlimited"
    if amount == 0:
        return "0"
    if resource == CPU:
        return _format_scaled(amount, 1000, ("m", "", "k", "M", "G", "T", "P"))
    if is_counted_in_bytes(resource):
        binary = _format_scaled(amount, 1024, ("", *_BINARY_SUFFIXES))
        if binary.endswith("i"):
            return binary
    return _format_scaled(amount, 1000, ("", "k", "M", "G", "T", "P", "E"))


def scheduling_hash(spec: Mapping[str, Any], request: Resources) -> str:
    """A hash of what decides where a pod fits: its requests, node selector, affinity and tolerations."""
    parts = [request, *map(spec.get, ("nodeSelector", "affinity", "tolerations"))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """The requests of one pod, plus `pods: 1`, which counts only where a ClusterQueue covers `pods`.

    Containers add up. A sidecar (init container with restartPolicy Always) adds to the containers and to every init
    container after the sidecar. The largest init step is the minimum. Pod-level cpu, memory and hugepages replace the
    sum; overhead is added. A limit without a request counts as the request, at pod level too: Kueue charges a bare
    template so, and the API server sets it in a pod. Raises the ValueError of `parse_quantity`.
    Source: component-helpers resource/helpers.go PodRequests; kueue pkg/workload/resources.go.
    """
    requests = _container_requests(spec)
    requests |= {name: nanos for name, nanos in _requests_of(spec).items() if _is_pod_level(name)}
    _add_to(requests, _parse_amounts(spec.get("overhead")))
    return {name: _to_kueue_units(nanos, name) for name, nanos in requests.items()} | {PODS: 1}


def _container_requests(spec: Mapping[str, Any]) -> _Nanos:
    running: _Nanos = {}
    for container in spec.get("containers") or ():
        _add_to(running, _requests_of(container))
    sidecars: _Nanos = {}
    highest: _Nanos = {}
    for container in spec.get("initContainers") or ():
        requests = _requests_of(container)
        for name, nanos in requests.items():
            highest[name] = max(highest.get(name, 0), sidecars.get(name, 0) + nanos)
        if container.get("restartPolicy") == "Always":
            _add_to(running, requests)
            _add_to(sidecars, requests)
    return running | {name: max(running.get(name, 0), nanos) for name, nanos in highest.items()}


def _requests_of(holder: Mapping[str, Any]) -> _Nanos:
    resources = holder.get("resources") or {}
    return _parse_amounts(resources.get("limits")) | _parse_amounts(resources.get("requests"))


def _parse_amounts(amounts: Mapping[str, object] | None) -> _Nanos:
    return {name: _parse_nanos(text) for name, text in (amounts or {}).items()}


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, "memory") or resource.startswith("hugepages-")


def _add_to(total: _Nanos, amounts: _Nanos) -> None:
    for name, nanos in amounts.items():
        total[name] = total.get(name, 0) + nanos


def _to_kueue_units(nanos: int, resource: str) -> int:
    amount = _divide_away_from_zero(nanos, 10**6 if resource == CPU else 10**9)
    return max(-UNLIMITED - 1, min(amount, UNLIMITED))


def _parse_nanos(text: object) -> int:
    # A bool is an int in Python, but `cpu: true` is a mistake.
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{printable(repr(text))} is not a quantity such as 500m, 2 or 1.5Gi")
    return _parse_text(str(text))


@lru_cache(maxsize=4096)  # a fleet has a few hundred different quantities
def _parse_text(text: str) -> int:
    negative = text.startswith("-")
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    suffix = unsigned.lstrip("0123456789.")
    whole, _, fraction = unsigned[: len(unsigned) - len(suffix)].partition(".")
    factor = _suffix_factor(suffix)
    if factor is None or "." in fraction or not whole + fraction:
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a quantity such as 500m, 2 or 1.5Gi")
    times, over = factor
    if len(whole + fraction) > _MAX_LENGTH:
        nanos = UNLIMITED * 10**9
    else:
        nanos = _divide_away_from_zero(int(whole + fraction) * times * 10**9, over * 10 ** len(fraction))
    return -nanos if negative else nanos


def _suffix_factor(suffix: str) -> tuple[int, int] | None:
    if suffix in _BINARY_SUFFIXES:
        return 2 ** _BINARY_SUFFIXES[suffix], 1
    exponent = _DECIMAL_SUFFIXES[suffix] if suffix in _DECIMAL_SUFFIXES else _parse_exponent(suffix)
    if exponent is None:
        return None
    return 10 ** max(exponent, 0), 10 ** max(-exponent, 0)


def _parse_exponent(suffix: str) -> int | None:
    sign, digits = (suffix[1:2], suffix[2:]) if suffix[1:2] in ("-", "+") else ("", suffix[1:])
    if suffix[0] not in "eE" or not (digits.isascii() and digits.isdecimal()):
        return None
    significant = digits.lstrip("0")
    exponent = int(significant or "0") if len(significant) < 3 else _MAX_EXPONENT
    return -exponent if sign == "-" else exponent


def _divide_away_from_zero(number: int, divisor: int) -> int:
    away = -(-abs(number) // divisor)
    return away if number >= 0 else -away


def _format_scaled(amount: int, step: int, suffixes: tuple[str, ...]) -> str:
    rank = 0
    while amount % step == 0 and rank + 1 < len(suffixes):
        amount, rank = amount // step, rank + 1
    return f"{amount}{suffixes[rank]}"
