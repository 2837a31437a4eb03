"""The price of workers, in the units that people use; no price where none is set."""

from decimal import Decimal

import pytest

from adapter.objects.pod_requests import Resources
from adapter.planning.prices import format_money, hourly_cost

GIB = 2**30


@pytest.mark.parametrize(
    ("prices", "workers", "want"),
    [
        ({}, [({"cpu": 1000}, 1)], None),
        ({"cpu": "0.04"}, [({"cpu": 500, "memory": GIB}, 4)], "0.08"),
        ({"memory": "0.005"}, [({"memory": 3 * GIB // 2}, 2)], "0.015"),
        ({"ephemeral-storage": "0.0001"}, [({"ephemeral-storage": 20 * GIB}, 4)], "0.008"),
        ({"hugepages-2Mi": "0.005"}, [({"hugepages-2Mi": GIB}, 2)], "0.01"),
        ({"nvidia.com/gpu": "2.10", "cpu": "0"}, [({"cpu": 8000, "nvidia.com/gpu": 2}, 3)], "12.60"),
        ({"cpu": "1"}, [({"cpu": 1000}, 2), ({"cpu": 2000}, 1)], "4.00"),
        ({"nvidia.com/gpu": "2"}, [({"cpu": 1000}, 2)], "0.00"),
        ({"cpu": "999999999.999999999"}, [({"cpu": 1000}, 1)], "1000000000.00"),
    ],
)
def test_per_hour(prices: dict[str, str], workers: list[tuple[Resources, int]], want: str | None) -> None:
    found = hourly_cost({name: Decimal(text) for name, text in prices.items()}, workers)
    assert (None if found is None else format_money(found)) == want
