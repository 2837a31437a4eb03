"""Market type and accelerator from a flavor's node labels: a table of what clouds write."""

import pytest

from adapter import names
from adapter.rewrite.ray_node_env import ray_labels_of_node


@pytest.mark.parametrize(
    ("node_labels", "market", "accelerator"),
    [
        ({"karpenter.sh/capacity-type": "spot"}, "spot", ""),
        ({"karpenter.sh/capacity-type": "reserved"}, "on-demand", ""),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, "on-demand", ""),
        ({"cloud.google.com/gke-spot": "true"}, "spot", ""),
        ({"cloud.google.com/gke-spot": "false"}, "", ""),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, "spot", ""),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "", "L4"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "", "T4"),
        ({"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}, "", "A100"),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "", "H100"),
        ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}, "", "V100"),
        ({"karpenter.k8s.aws/instance-gpu-name": "a10g"}, "", "A10G"),
        ({"nvidia.com/gpu.product": "something-else"}, "", ""),
        ({"pool": "spot"}, "", ""),
        ({}, "", ""),
    ],
)
def test_ray_labels_of_a_flavor(node_labels: dict[str, str], market: str, accelerator: str) -> None:
    wanted = {names.RAY_MARKET_LABEL: market, names.RAY_ACCELERATOR_LABEL: accelerator}
    assert ray_labels_of_node(node_labels) == {key: value for key, value in wanted.items() if value}
