"""Tests that the init container of KubeRay is left as it is where its requests cannot or must not be raised."""

from typing import Any

import pytest

from adapter import names
from adapter.rewrite.gcs_waiter import with_worker_requests


@pytest.mark.parametrize("amount", ["", "much", None])
def test_an_amount_that_is_no_quantity_stays(amount: Any) -> None:
    waiter = {"name": names.GCS_WAITER, "resources": {"requests": {"cpu": "200m"}}}
    spec = {"containers": [{"name": "ray-worker", "resources": {"requests": {"cpu": amount}}}]}
    assert with_worker_requests({**spec, "initContainers": [waiter]})["initContainers"] == [waiter]


def test_a_sidecar_of_that_name_keeps_its_requests() -> None:
    """A sidecar's requests are added to those of the containers."""
    sidecar = {"name": names.GCS_WAITER, "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}}}
    spec = {"containers": [{"name": "ray-worker", "resources": {"requests": {"cpu": "4"}}}]}
    assert with_worker_requests({**spec, "initContainers": [sidecar]})["initContainers"] == [sidecar]
