"""A manager whose events cannot be read is cached all the same."""

from typing import cast

import pytest

from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from tests.unit.objects.test_kuberay_events import rejection


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError(403, "Forbidden", "no"), id="no right"),
        pytest.param(ApiError(500, "InternalError", "etcdserver: request timed out"), id="another etcd has the events"),
        pytest.param(Unreachable("it does not answer"), id="no answer"),
    ],
)
def test_nothing_waits_for_events(error: Exception) -> None:
    manager = ManagerCache(cast(Client, None))
    (kind,) = (row for row in manager._watched_kinds if row.store is manager.kuberay_events)
    for row in manager._watched_kinds:
        if row is not kind:
            row.store.replace([])
    assert not manager.synced, "they are being read"
    manager._on_follow_result(kind, error)
    assert (manager.synced, manager.unreachable_reason) == (True, "")


def test_only_kuberays_warnings_about_ray_clusters_are_requested() -> None:
    manager = ManagerCache(cast(Client, None))
    (kind,) = (row for row in manager._watched_kinds if row.resource is resources.EVENTS)
    requirements = dict(part.split("=") for part in kind.selectors["fieldSelector"].split(","))
    event = {**rejection(9), "type": "Warning"}
    assert requirements == {
        "involvedObject.kind": event["involvedObject"]["kind"],
        "source": event["source"]["component"],
        "type": "Warning",
    }
