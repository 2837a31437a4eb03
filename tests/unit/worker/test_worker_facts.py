"""Ray labels of a role come from the flavors of its worker cluster."""

from dataclasses import replace

import pytest

from adapter import names
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.rewrite import ray_node_env
from adapter.worker.worker_facts import with_ray_labels
from tests.unit.builders import make_flavor, make_placement, make_reservation, make_workload

SHARE = parse_reservation("east", make_reservation(make_placement(make_workload())))
FLAVORS: dict[str, Raw] = {
    "spot": make_flavor("spot", nodeLabels={"karpenter.sh/capacity-type": "spot"}),
    "h100": make_flavor("h100", nodeLabels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
    "plain": make_flavor("plain"),
}
SPOT, H100 = {names.RAY_MARKET_LABEL: ray_node_env.SPOT}, {names.RAY_ACCELERATOR_LABEL: "H100"}


@pytest.mark.parametrize(
    ("flavors", "want"),
    [
        ({}, {}),
        ({"role-a": ("plain",)}, {}),
        ({"role-a": ("deleted",)}, {}),
        ({"role-a": ("spot",), "role-b": ("plain",)}, {"role-a": SPOT}),
        ({"role-a": ("h100", "spot"), "role-b": ("h100",)}, {"role-a": {**SPOT, **H100}, "role-b": H100}),
    ],
)
def test_ray_labels_of_each_role(flavors: dict[str, tuple[str, ...]], want: Raw) -> None:
    assert with_ray_labels(replace(SHARE, flavors=flavors), FLAVORS.get).ray_labels == want
