"""What is known of a share from the WorkerCluster that it is in, and from the flavors of the manager?"""

from typing import Any

import pytest

from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.rewrite.target import Target
from tests.unit import builders

KEY, OTHER = {"pool": "remote"}, {"zone": "far", "pool": "x"}
TAINT = {"key": "pool", "operator": "Equal", "value": "remote", "effect": "NoSchedule"}


def of(*flavors: Raw, **spec: Any) -> Target:
    return Target.for_share(
        "east",
        specs.parse_worker_cluster(builders.make_worker_cluster("east", **spec)),
        queue="team-a",
        manager="mgr",
        workload="rayjob-train",
        workload_uid="u",
        placement="train-1",
        round_=2,
        flavors=flavors,
    )


def test_it_is_the_share_of_that_round() -> None:
    found = of()
    assert (found.cluster, found.placement, found.round, found.share) == ("east", "train-1", 2, "train-1-2")
    assert (found.queue, found.manager, found.workload, found.workload_uid) == ("team-a", "mgr", "rayjob-train", "u")


def test_the_worker_cluster_says_where_that_is_and_how_the_head_is_found() -> None:
    said: Raw = {
        "zone": "a", "region": "b", "labels": {"tier": "spot"}, "resources": {"disk": 2},
        "head": {"address": "ServiceMirror"}, "pods": {"schedulerName": "volcano"},
    }  # fmt: skip
    found = of(**said)
    assert (found.zone, found.region, found.labels, found.resources) == ("a", "b", {"tier": "spot"}, {"disk": 2})
    assert (found.head.address, found.pods.scheduler) == ("ServiceMirror", "volcano")


def test_one_that_names_no_zone_is_a_zone() -> None:
    assert of(zone="").zone == "east"


@pytest.mark.parametrize(
    ("flavors", "keys", "tolerations"),
    [
        pytest.param([], set(), (), id="none"),
        pytest.param([{}], set(), (), id="one that says nothing, or is not there any more"),
        pytest.param([{"nodeLabels": KEY, "tolerations": [TAINT]}], {"pool"}, (TAINT,), id="one"),
        pytest.param([{"nodeLabels": KEY}, {"nodeLabels": OTHER, "tolerations": [TAINT]}], {"pool", "zone"}, (TAINT,), id="two"),
    ],
)  # fmt: skip
def test_what_the_managers_flavors_put_on_pods_is_known(flavors: list[Raw], keys: set[str], tolerations: Any) -> None:
    for found in (of(*flavors), Target.without_cluster(flavors)):
        assert {*found.manager_flavor_keys} == keys
        assert found.manager_flavor_tolerations == tolerations
