"""Measures the rewrite of one pod for its worker cluster, in microseconds for each golden pod.

The WorkerCluster says nothing of its pods, or all that it can. The goal is a millisecond. It needs no cluster.
"""

import argparse
import time
import timeit
from collections.abc import Callable

import yaml

from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.unstructured import Raw
from adapter.rewrite import rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from hack.bench import promises
from hack.bench.promises import Found, Row
from hack.lab.base.paths import REPO
from hack.testbed import figures

NAME = "rewriter"
HELP = "the rewriter, by pod"

_GOLDEN = REPO / "tests" / "unit" / "rewrite" / "golden" / "kuberay-1.6.2"
_EVERYTHING = PodMapping(
    node_selector={"pool": "ray"},
    tolerations=({"key": "ray", "operator": "Exists"},),
    service_account="ray",
    scheduler="volcano",
    runtime_class="gvisor",
    image_registries={"docker.io": "hub.east", "docker.io/rayproject": "rays.east"},
    labels={"team": "ray"},
    annotations={"karpenter.sh/do-not-disrupt": "true"},
)
_REPEATS, _SECONDS = 5, 0.03  # the best of so many, each of at least so long: disturbances only add


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the line for programs, and what is judged."""
    pods = {path.name.partition(".")[0]: yaml.safe_load(path.read_text()) for path in sorted(_GOLDEN.glob("*.in.yaml"))}
    costs = {name: (_rewrite(pod, NO_MAPPING), _rewrite(pod, _EVERYTHING)) for name, pod in pods.items()}
    print(
        "\n" + figures.table(("rewrite of one pod", "us", "mapped us"), [(name, *both) for name, both in costs.items()])
    )
    values = {f"{name}_us": plain for name, (plain, _) in costs.items()}
    rows = [Row(NAME, name, promises.REWRITE, max(both)) for name, both in costs.items()]
    line = figures.line(NAME, values | {"mapped_most_us": max(mapped for _, mapped in costs.values())})
    return Found([line], rows)


def _rewrite(pod: Raw, mapping: PodMapping) -> float:
    target = Target(
        cluster="east", zone="a", region="b", queue="ray", manager="m", workload="w", workload_uid="u", placement="p",
        share="p-1", round=1, pods=mapping,
    )  # fmt: skip

    def work() -> object:
        return rewriter.remote_pod(
            pod,
            head=HeadAddress.from_pod(pod, "10.11.0.12"),
            target=target,
            role="role",
            slot="east/role/0",
            anchor_uid="a",
        )

    return _cost(work)


def _cost(work: Callable[[], object]) -> float:
    """Microseconds for one call."""
    timer = timeit.Timer(work, timer=time.process_time)  # CPU time: other work on the machine counts less
    once, _ = 1, timer.timeit(1)
    while timer.timeit(once) < _SECONDS:
        once *= 2
    return min(timer.repeat(_REPEATS, once)) / once * 1e6
