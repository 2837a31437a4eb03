"""Every store of a worker cluster has a listener; without one, only a resync would notice its changes."""

from typing import Any, cast

import pytest

from adapter.objects import specs
from adapter.shell.clusters import worker_cache
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube.client import ApiError, Client
from tests.unit import builders, stores

WHO = {
    "workloads": "on_reservation",
    "pods": "on_pod",
    "clusterqueues": "on_capacity",
    "localqueues": "on_capacity",
    "cohorts": "on_capacity",
    "resourceflavors": "on_capacity",
    "namespaces": "on_capacity",
    "nodes": "on_capacity",
    "services": "on_head_mirror",
    "endpointslices": "on_head_mirror",
}


def test_each_store_notifies_of_its_changes() -> None:
    told: list[object] = []

    def listener(who: str) -> Any:
        return lambda *what: told.append((who, *what))

    tell = WorkerClusterListeners(**{who: listener(who) for who in {*WHO.values(), "on_contact"}})
    spec = specs.parse_worker_cluster(builders.make_worker_cluster("east", head={"address": "ServiceMirror"}))
    cache = WorkerClusterCache("east", spec, cast(Client, None), "mgr", tell)
    assert {row.resource.plural for row in cache._watched_kinds} == set(WHO)
    for row in cache._watched_kinds:
        who, told[:] = WHO[row.resource.plural], []
        first, second = ({"metadata": {"name": "a", "uid": "u", "resourceVersion": number}} for number in ("1", "2"))
        where = () if who == "on_head_mirror" else ("east",)
        row.store.put(first)
        row.store.put(second)
        row.store.remove(second)
        assert told == [(who, *where, *pair) for pair in ((None, first), (first, second), (second, None))], row.resource


def test_the_reason_without_a_claim_is_reported_while_it_lasts() -> None:
    told: list[str] = []
    found = stores.make_member("east", 1)
    found._listeners = WorkerClusterListeners(on_contact=told.append)
    election: Any = None
    found.claim = ClaimHolder(cast(Client, None), "mgr", found.identity, election, found.on_claim)
    for lack, hindrance, why in (("", "it is busy", "it is busy"), ("no right", "", "no right"), ("", "", "")):
        found.claim.unclaimable_reason, found.claim.blocked_reason = lack, hindrance
        found.on_claim(None, opened=False)
        assert (found.unclaimed_reason, len(told)) == (why, 1)
        told.clear()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kubeConfig": {"secretRef": {"name": "east"}}}, "run `kubectl rayspan rotate east --worker-context CONTEXT`"),
        ({"multiKueueClusterRef": {"name": "east"}}, "renew the Secret"),
        ({"clusterProfileRef": {"name": "east"}}, "renew the Secret"),
    ],
)
def test_an_expired_login_is_reported_with_its_remedy(source: dict[str, Any], said: str) -> None:
    spec = specs.parse_worker_cluster({"metadata": {"name": "east"}, "spec": {"source": source}})
    sentence = worker_cache._error_message(ApiError(401, "Unauthorized", ""), "east", spec)
    assert sentence == f"it does not accept the kubeconfig's token or certificate, which may have ended; {said}"
