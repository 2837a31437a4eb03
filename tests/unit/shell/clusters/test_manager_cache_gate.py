"""A manager that serves no MutatingAdmissionPolicy is cached all the same, and an earlier answer is forgotten."""

from typing import cast

import pytest

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import Resource
from adapter.shell.observe.dispatch_policies import PolicyObserver
from tests.unit.builders import START
from tests.unit.stores import Sight

KINDS = (resources.GATE_POLICIES, resources.GATE_BINDINGS, resources.GATE_WEBHOOKS)
NOT_SERVED = ApiError(404, "NotFound", "the server could not find the requested resource")


def followed(manager: ManagerCache, resource: Resource, error: Exception | None = None) -> None:
    (row,) = (row for row in manager._watched_kinds if row.resource is resource)
    manager._on_follow_result(row, error)


@pytest.mark.parametrize("error", [NOT_SERVED, ApiError(403, "Forbidden", "no")], ids=["not served", "no right"])
def test_a_manager_without_the_policies_is_cached(error: ApiError) -> None:
    manager = ManagerCache(cast(Client, None))
    for row in manager._watched_kinds:
        if row.resource not in KINDS:
            row.store.replace([])
    assert not manager.synced
    for kind in KINDS:
        followed(manager, kind, error)
    assert (manager.synced, manager.unreachable_reason) == (True, "")
    followed(manager, KINDS[0])
    assert not manager.synced, "it may be read now, and nothing of it was"


def test_a_gate_that_cannot_be_read_any_more_counts_as_missing() -> None:
    manager = Sight({"east": 1}).manager
    policies = PolicyObserver(manager)
    assert policies.gate_problem(START) == ""
    followed(manager, resources.GATE_BINDINGS, NOT_SERVED)
    assert policies.gate_problem(START).startswith("MutatingAdmissionPolicyBinding rayspan-gate is missing")
    manager.gate_webhooks.replace([webhook()])
    assert policies.gate_problem(START) == ""
    followed(manager, resources.GATE_WEBHOOKS, NOT_SERVED)
    assert policies.gate_problem(START)
    followed(manager, resources.GATE_BINDINGS)
    assert policies.gate_problem(START) == ""


def webhook() -> Raw:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    one = {"name": names.GATE_WEBHOOK, "failurePolicy": "Fail", "rules": [rule], "clientConfig": {"caBundle": "LS0="}}
    return {"metadata": {"name": names.GATE_POLICY}, "webhooks": [one]}
