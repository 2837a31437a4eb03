"""The figures beside a plan: the scarcest resource of all groups, and every flavor of the requested resources."""

from typing import Any

from adapter.objects.unstructured import Raw
from adapter.planning import plan_document
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_flavor

CPU: Raw = {"cpu": 1000, "pods": 1}
GPU: Raw = {"cpu": 1000, "gpu": 2, "pods": 1}


def _candidate(problem: str = "", **spec: Any) -> Candidate:
    """A queue with cpu in two flavors, of which the first is full, and GPUs in a third."""

    def flavor(name: str, resource: str, amount: int) -> Raw:
        return {"name": name, "resources": [{"name": resource, "nominalQuota": str(amount)}]}

    groups = [
        {"coveredResources": ["cpu"], "flavors": [flavor("old", "cpu", 4), flavor("new", "cpu", 8)]},
        {"coveredResources": ["gpu"], "flavors": [flavor("a100", "gpu", 5)]},
    ]
    used = [{"name": "old", "resources": [{"name": "cpu", "total": "4"}]}]
    queue = {
        "metadata": {"name": "team-a"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        "status": {"flavorsReservation": used},
    }
    tree = build([queue], [], [make_flavor(name) for name in ("old", "new", "a100")])
    return Candidate("east", problem, tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})


def _request(*asks: Raw) -> GangRequest:
    return GangRequest(
        NAMESPACE, QUEUE, tuple(GroupRequest(f"g{n}", f"r{n}", 2, {}, ask) for n, ask in enumerate(asks))
    )


def test_each_flavor_of_a_requested_resource_has_a_row() -> None:
    found = plan_document.quota_rows(_request(CPU), _candidate())
    assert [(row.flavor, row.resource, row.nominal, row.used, row.available, row.potential) for row in found] == [
        ("old", "cpu", 4000, 4000, 0, 4000),
        ("new", "cpu", 8000, 0, 8000, 8000),
    ]
    assert {row.resource for row in plan_document.quota_rows(_request(CPU, GPU), _candidate())} == {"cpu", "gpu"}


def test_the_scarcest_resource_is_the_first_to_run_out_in_any_group() -> None:
    """Eight cores hold eight workers, five GPUs two."""
    found = plan_document.scarcest_quota(_request(CPU, GPU), _candidate())
    assert found and (found.flavor, found.resource, found.available) == ("a100", "gpu", 5)
    found = plan_document.scarcest_quota(_request(CPU), _candidate())
    assert found and (found.flavor, found.resource, found.available) == ("new", "cpu", 8000)


def test_a_closed_cluster_has_no_figures() -> None:
    for one in (_candidate("it is cordoned"), _candidate(stopPolicy="Hold")):
        assert plan_document.quota_rows(_request(CPU), one) == []
        assert plan_document.scarcest_quota(_request(CPU), one) is None
