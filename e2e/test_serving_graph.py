"""Tests that a RayService's deployments reach each other across clusters, and take `serveConfigV2` edits in place."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import rayservice
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import RayService
from hack.testbed.reader import Raw

pytestmark = pytest.mark.long

NAME = "rayservice-graph"
SAMPLE = REPO / "manifests" / "samples" / f"{NAME}.yaml"
AUTOSCALED = {
    "min_replicas": 1,
    "max_replicas": 2,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 2,
    "downscale_delay_s": 600,
}


@pytest.fixture(scope="module")
def service(fleet: Clusters) -> Iterator[RayService]:
    """The sample. All tests share it, as starting Serve takes a minute."""
    with rayservice.started(fleet, NAME, _apply) as graph_sample:
        yield graph_sample


def test_a_handle_reaches_a_deployment_in_another_cluster(service: RayService) -> None:
    with rayservice.asked(service) as asker:
        asker.wait("it answers", lambda answers: len(answers) > 20)
        assert not asker.failed()
        assert {(answer["gate"]["zone"], answer["model"]["zone"]) for answer in asker.answers()} == {("east", "west")}


def test_an_edit_of_serve_config_changes_deployments_in_place(service: RayService) -> None:
    """Another `user_config` costs no request, no RayCluster, no worker and no quota."""
    before = _uids(service)
    with rayservice.asked(service) as asker:
        asker.wait("it answers", lambda answers: len(answers) > 5)
        _apply(service, lambda model: model.update(user_config={"word": "two"}))
        asker.wait("the model has the other word", lambda answers: _last(answers)["word"] == "two")
        assert not asker.failed()
        assert {answer["model"]["word"] for answer in asker.answers()} == {"one", "two"}
    assert _uids(service) == before


def test_serve_adds_replicas_within_the_workers(service: RayService) -> None:
    """Serve's own autoscaling: the second replica runs on the same worker, and nothing asks for quota."""
    before = _uids(service)
    _apply(service, _autoscale)
    with rayservice.loaded(service, "load", 8) as load:
        load.wait("two replicas answer", lambda answers: len(_replicas(answers)) == 2)
        assert {answer["model"]["zone"] for answer in load.answers()} == {"west"}
        assert not load.failed()
    assert _uids(service) == before


def _apply(service: RayService, change: Callable[[Raw], None] = lambda _: None) -> None:
    """`kubectl apply` the sample; `change` may edit the deployment Model in its `serveConfigV2`."""
    raw, code = yaml.safe_load_all(SAMPLE.read_text())
    config = yaml.safe_load(raw["spec"]["serveConfigV2"])
    (_, model) = config["applications"][0]["deployments"]
    change(model)
    raw["spec"]["serveConfigV2"] = yaml.safe_dump(config)
    service.fleet.manager.apply(yaml.safe_dump_all([code, raw]))


def _autoscale(model: Raw) -> None:
    del model["num_replicas"]
    model["autoscaling_config"] = AUTOSCALED


def _last(answers: list[dict[str, Any]]) -> dict[str, Any]:
    model: dict[str, Any] = answers[-1].get("model") or {"word": ""}
    return model


def _replicas(answers: list[dict[str, Any]]) -> set[str]:
    return {answer["model"]["replica"] for answer in answers if "model" in answer}


def _uids(service: RayService) -> set[str]:
    """Its RayClusters, their pods in all clusters, and the shares of quota in worker clusters."""
    fleet = service.fleet
    objects = [*service.ray_clusters(), *fleet.manager.items("pods", NAMESPACE, names.RAY_NODE_TYPE_LABEL)]
    for worker in fleet.workers.values():
        for kind in ("pods", "workloads"):
            objects += worker.items(kind, NAMESPACE, names.MANAGER_LABEL)
    return {item["metadata"]["uid"] for item in objects}
