"""What stock KubeRay and Kueue make of a RayService in a queue, without Ray: who owns its RayClusters, and who
writes to them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed import rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import AUTOSCALED, Stage, ray_cluster

NAME = "chat"
pytestmark = [pytest.mark.alone, pytest.mark.long]  # stock Kueue is configured anew, and restarted


@pytest.fixture(scope="module")
def dispatched(fleet: Clusters) -> Iterator[Clusters]:
    """Kueue without its integration of RayServices, and KubeRay held."""
    with rayservice.dispatched(fleet):
        yield fleet


def test_what_waits_takes_an_edit_and_what_runs_keeps_its_lock(
    dispatched: Clusters, stage: Stage, running: Controller
) -> None:
    """Without the policy KubeRay turns `suspend` off some thirty times a second, and what it writes has neither
    label nor lock."""
    stage.build({"east": 1})
    _apply(stage, "first", workers=2)
    wait(lambda: "2 workers needed at once" in _said(stage, "Waiting"), 60, "the service says so", running.tail)
    _apply(stage, "second", workers=2)
    wait(lambda: _env(_cluster(stage)) == "second", 60, "the RayCluster that waits takes the edit", running.tail)
    waiting = _cluster(stage)
    assert waiting["spec"]["suspend"] is True
    assert waiting["metadata"]["generation"] < 20, "nobody turns it on and off"

    stage.set_quota(stage.fleet.workers["east"], 8)
    wait(lambda: stage.running(2), 90, "both workers run in east", running.tail)
    runs = _cluster(stage)
    assert runs["metadata"]["uid"] == waiting["metadata"]["uid"] and runs["spec"]["suspend"] is False
    _is_locked(runs)

    # Without Ray it is never ready, so to KubeRay any edit is one of the RayCluster that it still waits for.
    _apply(stage, "third", workers=2, more="appended")
    stage.manager.delete("rayclusters", runs["metadata"]["name"], stage.name, wait=False)
    wait(lambda: [_env(one) for one in _clusters(stage)] == ["third"], 60, "the next one has the edit", running.tail)


def test_what_waits_to_grow_takes_an_edit(dispatched: Clusters, stage: Stage, running: Controller) -> None:
    """Kueue rejects an update of an elastic RayCluster whose templates lack its gate, which KubeRay does not know."""
    stage.build({"east": 1})
    _apply(stage, "first", workers=2, elastic=True)
    wait(lambda: "2 workers needed at once" in _said(stage, "Waiting"), 60, "the service says so", running.tail)
    _apply(stage, "second", workers=2, elastic=True)
    wait(lambda: _env(_cluster(stage)) == "second", 60, "the RayCluster that waits takes the edit", running.tail)
    waiting = _cluster(stage)["spec"]
    assert waiting["suspend"] is True
    for group in (waiting["headGroupSpec"], *waiting["workerGroupSpecs"]):
        assert group["template"]["spec"]["schedulingGates"] == [{"name": names.ELASTIC_GATE}]


def test_an_upgrade_step_by_step_is_refused_at_once(dispatched: Clusters, stage: Stage) -> None:
    stage.build({"east": 1})
    with pytest.raises(LabError, match=r"spec\.upgradeStrategy\.type is NewClusterWithIncrementalUpgrade"):
        _apply(stage, "first", workers=1, upgradeStrategy={"type": names.INCREMENTAL_UPGRADE})


def test_a_service_is_judged_by_the_queue_that_it_will_have(dispatched: Clusters, stage: Stage) -> None:
    """A policy's selector takes an update for the label of either object: that of before, and that of after."""
    stage.build({"east": 1})
    _apply(stage, "first", workers=1)
    upgrade = {"upgradeStrategy": {"type": names.INCREMENTAL_UPGRADE}}
    _patch_queue(stage, None, upgrade)
    with pytest.raises(LabError, match=r"spec\.upgradeStrategy\.type is NewClusterWithIncrementalUpgrade"):
        _patch_queue(stage, "ray", {})
    _patch_queue(stage, "ray", {"upgradeStrategy": None})


def _patch_queue(stage: Stage, queue: str | None, spec: Raw) -> None:
    """Write the queue label of the service, or remove it, together with fields of its spec."""
    patch = json.dumps({"metadata": {"labels": {names.QUEUE_LABEL: queue}}, "spec": spec})
    stage.manager.kubectl("-n", stage.name, "patch", "rayservice", NAME, "--type=merge", "-p", patch)


def test_autoscaling_without_kueues_annotation_is_refused_at_once(dispatched: Clusters, stage: Stage) -> None:
    """Otherwise KubeRay would try in vain to create its RayClusters, which Kueue rejects."""
    stage.build({"east": 1})
    without = re.escape(
        f"RayService {NAME}: spec.rayClusterConfig.enableInTreeAutoscaling is true, and metadata.annotations lacks "
        f'{names.ELASTIC_ANNOTATION}: "true"'
    )
    with pytest.raises(LabError, match=without):
        _apply(stage, "first", workers=1, autoscaled=True)
    _apply(stage, "first", workers=1)
    with pytest.raises(LabError, match=without):
        _apply(stage, "second", workers=1, autoscaled=True)
    _apply(stage, "second", workers=1)  # another edit passes


def test_a_service_from_before_the_guard_may_be_edited(dispatched: Clusters, stage: Stage) -> None:
    """It is no worse than it was, and another field may be what its owner corrects first."""
    stage.build({"east": 1})
    try:
        stage.manager.delete("validatingadmissionpolicybinding", names.SERVICE_POLICY)
        wait(lambda: not _is_rejected(stage, NAME), 60, "nothing guards it")
        _apply(stage, "first", workers=1, autoscaled=True)
    finally:
        stage.manager.kubectl("apply", "-k", REPO / "kustomize/components/rayservice")
    wait(lambda: _is_rejected(stage, "another"), 60, "another one is rejected")
    _apply(stage, "second", workers=1, autoscaled=True)


def _is_rejected(stage: Stage, name: str) -> bool:
    try:
        _apply(stage, "first", "--dry-run=server", workers=1, autoscaled=True, name=name)
    except LabError:
        return True
    return False


def test_a_service_that_learns_to_grow_before_it_serves_is_warned_of_its_raycluster(
    dispatched: Clusters, stage: Stage, running: Controller
) -> None:
    """Kueue rejects KubeRay's update of the RayCluster that waits, as the annotation of a job cannot change."""
    stage.build({"east": 1})
    _apply(stage, "first", workers=2)
    wait(lambda: _clusters(stage), 60, "its RayCluster exists", running.tail)
    waiting = _cluster(stage)["metadata"]["name"]
    wait(lambda: _pending(stage) == waiting, 60, "KubeRay says so", running.tail)
    with pytest.raises(LabError, match=f"elastic-job changes, but RayCluster {waiting} does not serve yet"):
        _apply(stage, "second", "--warnings-as-errors", workers=2, elastic=True)
    stage.manager.delete("rayclusters", waiting, stage.name, wait=False)
    wait(lambda: [_env(one) for one in _clusters(stage)] == ["second"], 60, "the next one has the edit", running.tail)
    assert _cluster(stage)["metadata"]["annotations"][names.ELASTIC_ANNOTATION] == "true"


def _apply(
    stage: Stage,
    env: str,
    *options: str,
    workers: int,
    more: str = "",
    elastic: bool = False,
    autoscaled: bool = False,
    name: str = NAME,
    **spec: Any,
) -> None:
    """`kubectl apply` the service; an `elastic` one has Kueue's annotation and is `autoscaled`."""
    groups = {"workers": workers, **({more: 1} if more else {})}
    made = ray_cluster(name, stage.name, groups)
    if elastic:
        made["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    if elastic or autoscaled:
        made["spec"] |= AUTOSCALED
    for group in made["spec"]["workerGroupSpecs"]:
        group["template"]["spec"]["containers"][0]["env"] = [{"name": "RELEASE", "value": env}]
    stage.manager.kubectl("apply", *options, "-f", "-", input=yaml.safe_dump(rayservice.of(made, **spec)))


def _pending(stage: Stage) -> str:
    """The RayCluster that KubeRay prepares, by the status of the service."""
    status = stage.manager.get("rayservices", NAME, stage.name).get("status") or {}
    return str((status.get("pendingServiceStatus") or {}).get("rayClusterName", ""))


def _clusters(stage: Stage) -> list[Raw]:
    found = stage.manager.items("rayclusters", stage.name)
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def _cluster(stage: Stage) -> Raw:
    (found,) = _clusters(stage)
    return found


def _env(found: Raw) -> str:
    container = found["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    return str(container["env"][0]["value"])


def _said(stage: Stage, reason: str) -> str:
    """What Rayspan said of the service."""
    return stage.events(NAME).get(reason, "")


def _is_locked(found: Raw) -> None:
    for group in found["spec"]["workerGroupSpecs"]:
        assert group["template"]["metadata"]["labels"][names.PLACEMENT_LABEL]
        assert group["template"]["spec"]["nodeSelector"][names.LOCK_NODE_SELECTOR] == names.LOCK_NODE_SELECTOR_VALUE
