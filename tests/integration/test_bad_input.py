"""Mistakes of users end in a message where they look, hold nothing in any cluster, and do not delay other gangs.

Beside each bad job a good one runs in the same queues. What the API servers reject themselves never reaches the
controller: then their answer is the message.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.auditlog import Written, gangs
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

Change = Callable[[dict[str, Any]], None]


def _template(body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return found


def _nowhere(body: dict[str, Any]) -> None:
    _template(body)["nodeSelector"] = {**_template(body)["nodeSelector"], "kubernetes.io/hostname": "no-such-node"}


def _asks_for_nothing(body: dict[str, Any]) -> None:
    del _template(body)["containers"][0]["resources"]


def _no_such_zone(body: dict[str, Any]) -> None:
    body["spec"]["workerGroupSpecs"][0]["template"]["metadata"] = {"annotations": {names.ZONE_ANNOTATION: "atlantis"}}


def _no_such_region(body: dict[str, Any]) -> None:
    body["spec"]["workerGroupSpecs"][0]["labels"] = {names.RAY_REGION_LABEL: "atlantis"}


def _far_too_many(body: dict[str, Any]) -> None:
    group = body["spec"]["workerGroupSpecs"][0]
    group["replicas"] = group["minReplicas"] = group["maxReplicas"] = 50


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(_far_too_many, "Even empty clusters hold only 4", id="more than all clusters hold"),
        pytest.param(_nowhere, "matches the worker's node selector", id="no node there has the label",
            marks=pytest.mark.long),
        pytest.param(_no_such_zone, "atlantis", id="a zone that no cluster has", marks=pytest.mark.long),
        pytest.param(_no_such_region, "requires region atlantis", id="a region that no cluster has",
            marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_gang_that_fits_nowhere_waits_and_says_why(
    stage: Stage, running: Controller, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    stage.build({"east": 2, "west": 2})
    written = Written(stage)
    _submit(stage, change)
    wait(lambda: sentence in stage.events("bad").get("Waiting", ""), 60, "the job says why", _dump(stage, running))
    assert stage.placement("bad")["spec"]["shares"] == []
    assert sentence in stage.check("bad")["message"]
    _good_one_runs(stage, running, written)


@pytest.mark.usefixtures("audited")
def test_a_worker_that_asks_for_nothing_is_refused(stage: Stage, running: Controller) -> None:
    """Nothing could be reserved for it, and it would run on quota that is others'."""
    stage.build({"east": 2, "west": 2})
    written = Written(stage)
    _submit(stage, _asks_for_nothing)
    wait(lambda: "Rejected" in stage.events("bad"), 60, "the job says why", _dump(stage, running))
    assert "worker group workers: spec.containers have no resources.requests" in stage.told("bad", "Rejected")
    _good_one_runs(stage, running, written)


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_a_gang_with_nothing_to_send_is_let_pass(stage: Stage, running: Controller) -> None:
    """Zero replicas: there is nothing to be dispatched, and the head is none of our business."""
    stage.build({"east": 2, "west": 2})
    written = Written(stage)
    stage.ray_cluster("bad", workers=0)
    wait(lambda: stage.check("bad").get("state") == names.CHECK_READY, 60, "it passes", _dump(stage, running))
    assert stage.check("bad")["message"] == "No worker of this job needs to be placed."
    assert stage.placement("bad") == {}
    (update,) = stage.check("bad")["podSetUpdates"]
    assert update["nodeSelector"] == {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE}, (
        "it may be scaled by hand"
    )
    _good_one_runs(stage, running, written)


@pytest.mark.long
def test_an_empty_group_beside_a_full_one(stage: Stage, running: Controller) -> None:
    """A group of nobody holds nobody up, and is locked away as the other one is, which may be called `submitter`."""
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=0, groups={"none": 0, "submitter": 2})
    wait(lambda: stage.running(2), 90, "two workers run", _dump(stage, running))
    assert {update["name"] for update in stage.check("pi")["podSetUpdates"]} == {"none", "submitter"}
    templates = [
        group["template"] for group in stage.manager.get("rayclusters", "pi", stage.name)["spec"]["workerGroupSpecs"]
    ]
    assert [template["metadata"]["labels"][names.PLACEMENT_LABEL] for template in templates] == [
        stage.placement("pi")["metadata"]["name"]
    ] * 2


@pytest.mark.long
@pytest.mark.parametrize(("groups", "taken"), [(17, True), (18, False)])
def test_as_many_groups_as_kueue_takes(stage: Stage, running: Controller, groups: int, taken: bool) -> None:
    """Kueue takes 18 podsets, head included: so many are one gang, and one more is refused as it is submitted."""
    stage.build({"east": 9, "west": 9}, manager_cpu=40)
    body = ray_cluster("pi", stage.name, {f"group-{number}": 1 for number in range(groups)})
    if not taken:
        with pytest.raises(LabError, match="18"):
            stage.manager.apply(yaml.safe_dump(body))
        return
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: stage.running(groups), 120, "every worker runs", _dump(stage, running))
    shares = stage.placement("pi")["spec"]["shares"]
    assert sorted(len(share["groups"]) for share in shares) == [8, 9]


POLICIES: dict[str, tuple[Raw, str]] = {
    "a cluster that does not exist": ({"clusters": {"names": ["atlantis"]}}, "atlantis"),
    "labels that no cluster has": (
        {"clusters": {"selector": {"matchLabels": {"tier": "gold"}}}},
        "the policy selects no WorkerCluster",
    ),
}


@pytest.mark.long
@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_leads_nowhere_is_told(stage: Stage, running: Controller, name: str) -> None:
    """On its check or on the job, whoever can change it; nothing is asked of any cluster."""
    spec, sentence = POLICIES[name]
    stage.build({"east": 2, "west": 2})
    written = Written(stage)
    _set_policy(stage, spec)
    stage.ray_cluster("bad", workers=2)

    def told() -> bool:
        said = (*stage.events("bad").values(), str(_active(stage).get("message")))
        return any(sentence in one for one in said)

    wait(told, 60, "somebody says why", _dump(stage, running))
    assert written.take() == []
    _set_policy(stage, {"clusters": {"names": ["east", "west"]}})
    wait(lambda: stage.running(2), 90, "it runs with a policy that makes sense", _dump(stage, running))
    assert written.take(), "what is asked of clusters shows in their logs"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"clusters": {"names": []}}, "names"),
        ({"clusters": {"names": ["east"], "selector": {"matchLabels": {"a": "b"}}}}, "Set exactly one"),
        ({"clusters": {"names": ["east"]}, "minWorkers": 2}, "belong together"),
        ({"clusters": {"names": ["east"]}, "gang": "SameCluster", "strategy": "Spread"}, "contradict each other"),
        ({"clusters": {"names": ["east"]}, "strategy": "Random"}, "Unsupported value"),
        ({"clusters": {"names": ["east", "east"]}}, "names"),
    ],
)
def test_a_policy_that_contradicts_itself_is_not_taken(stage: Stage, spec: Raw, sentence: str) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.DISPATCH_POLICY_KIND,
        "metadata": {"name": "bad"},
        "spec": spec,
    }
    with pytest.raises(LabError, match=sentence):
        stage.manager.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(body))


def _submit(stage: Stage, change: Change) -> None:
    """Submit a RayCluster of two workers with something wrong in it."""
    body = ray_cluster("bad", stage.name, {"workers": 2})
    change(body)
    stage.manager.apply(yaml.safe_dump(body))


def _good_one_runs(stage: Stage, running: Controller, written: Written) -> None:
    """Two workers find room beside the bad job, for which no cluster was ever asked, then or before."""
    assert written.take() == []
    stage.ray_cluster("good", workers=2)
    wait(lambda: stage.running(2), 90, "the good gang runs", _dump(stage, running))
    assert gangs(written.take()) == {stage.placement("good")["metadata"]["name"]}


def _set_policy(stage: Stage, spec: Raw) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec", "value": spec}])
    stage.manager.kubectl("patch", "dispatchpolicy", stage.name, "--type=json", "-p", patch)


def _active(stage: Stage) -> Raw:
    return condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE)


def _dump(stage: Stage, running: Controller) -> Callable[[], str]:
    return lambda: f"{stage.events('bad')} {stage.check('bad')} {_active(stage)}\n{running.tail()}"
