"""The target of a share, from its WorkerCluster and from the manager's flavors."""

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


def test_the_target_names_the_share_of_that_round() -> None:
    found = of()
    assert (found.cluster, found.placement, found.round, found.share) == ("east", "train-1", 2, "train-1-2")
    assert (found.queue, found.manager, found.workload, found.workload_uid) == ("team-a", "mgr", "rayjob-train", "u")


def test_the_target_has_the_zone_and_head_address_of_the_worker_cluster() -> None:
    said: Raw = {
        "zone": "a", "region": "b", "labels": {"tier": "spot"}, "resources": {"disk": 2},
        "head": {"address": "ServiceMirror"}, "pods": {"schedulerName": "volcano"},
    }  # fmt: skip
    found = of(**said)
    assert (found.zone, found.region, found.labels, found.resources) == ("a", "b", {"tier": "spot"}, {"disk": 2})
    assert (found.head.address, found.pods.scheduler) == ("ServiceMirror", "volcano")


def test_a_worker_cluster_without_a_zone_is_its_own_zone() -> None:
    assert of(zone="").zone == "east"


@pytest.mark.parametrize(
    ("flavors", "keys", "tolerations"),
    [
        pytest.param([], set(), (), id="no flavor"),
        pytest.param([{}], set(), (), id="an empty or deleted flavor"),
        pytest.param([{"nodeLabels": KEY, "tolerations": [TAINT]}], {"pool"}, (TAINT,), id="one"),
        pytest.param([{"nodeLabels": KEY}, {"nodeLabels": OTHER, "tolerations": [TAINT]}], {"pool", "zone"}, (TAINT,),
            id="two"),
    ],
)  # fmt: skip
def test_the_target_has_the_labels_and_taints_of_the_managers_flavors(
    flavors: list[Raw], keys: set[str], tolerations: Any
) -> None:
    for found in (of(*flavors), Target.without_cluster(flavors)):
        assert {*found.manager_flavor_keys} == keys
        assert found.manager_flavor_tolerations == tolerations
