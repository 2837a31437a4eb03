"""What a cluster's containers use, as its kubelets publish it under /metrics/resource."""

from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from hack.testbed.clusters import Cluster

_CPU, _MEMORY = "container_cpu_usage_seconds", "container_memory_working_set_bytes"
ContainerKey = tuple[str, str]
"""Pod and container."""


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    at: float
    """When the CPU was measured, in seconds since the epoch."""
    cpu_s: float
    memory_mb: float


def read_usage(cluster: Cluster, namespace: str) -> dict[ContainerKey, ContainerUsage]:
    """The usage of each container of a namespace, on all nodes that have a kubelet."""
    nodes = [node["metadata"]["name"] for node in cluster.items("nodes")]
    texts = [
        cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics/resource")
        for node in nodes
        if "-fake-" not in node
    ]
    return {key: usage for text in texts for key, usage in parse_usage(text, namespace).items()}


def parse_usage(text: str, namespace: str) -> dict[ContainerKey, ContainerUsage]:
    values: dict[str, dict[ContainerKey, tuple[float, float]]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.name in (_CPU, _MEMORY) and sample.labels.get("namespace") == namespace:
                key = sample.labels["pod"], sample.labels["container"]
                values[family.name][key] = sample.value, float(sample.timestamp or 0)
    cpu, memory = values[_CPU], values[_MEMORY]
    return {
        key: ContainerUsage(at, seconds, memory[key][0] / 1e6) for key, (seconds, at) in cpu.items() if key in memory
    }
