"""KubeRay rejects jobs that the API server and Kueue accept: our table names each in advance, and no share is held.

A new KubeRay that drops a rule, or words it otherwise, turns the first test red.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.objects.kuberay_events import is_rejection
from adapter.objects.kuberay_rules import kuberay_faults
from hack.lab.base.paths import REPO
from hack.testbed.auditlog import Written, gangs
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.kuberay_refusals import KUBERAY_REFUSALS, KubeRayRefusal, as_ray_job, refused_job
from hack.testbed.stage import Stage, ray_cluster

IDLE_TIMEOUT = {"idleTimeoutSeconds": 60}  # KubeRay 1.6.2 rejects it without the autoscaler; KubeRay 1.5.1 does not

pytestmark = pytest.mark.usefixtures("audited")


@pytest.mark.long
def test_kuberay_rejects_what_the_table_names(stage: Stage, running: Controller) -> None:
    """Each row is created in a queue: KubeRay's event appears while the job is suspended, and no cluster is asked."""
    stage.build({"east": 4})
    written = Written(stage)
    jobs = {refusal.title: _create(stage, refusal, number) for number, refusal in enumerate(KUBERAY_REFUSALS)}
    for refusal in KUBERAY_REFUSALS:
        kind, name = jobs[refusal.title]["kind"], jobs[refusal.title]["metadata"]["name"]
        says = functools.partial(_kuberay_says, stage, name, refusal.kuberay_words)
        wait(says, 60, f"KubeRay rejects: {refusal.title}", running.tail)
        stored = stage.manager.get(f"{kind.lower()}s.ray.io", name, stage.name)
        path = "spec.rayClusterSpec" if kind == "RayJob" else "spec"
        faults = kuberay_faults(kind, stored)
        assert any(fault.startswith(refusal.sentence.format(path, path)) for fault in faults), refusal.title
    assert gangs(written.take()) == set()
    assert stage.reserving() == 0


@pytest.mark.parametrize("kind", names.RAY_KINDS)
def test_a_job_that_kuberay_rejects_holds_nothing(stage: Stage, running: Controller, kind: str) -> None:
    """The head has a Redis address without the options: the job is rejected with the field, and one beside it runs."""
    stage.build({"east": 1})
    written = Written(stage)
    (refusal,) = [each for each in KUBERAY_REFUSALS if each.title == "Redis without fault tolerance"]
    body = refused_job(ray_cluster("refused", stage.name, {"workers": 1}), refusal)
    stage.manager.apply(yaml.safe_dump(body if kind == "RayCluster" else as_ray_job(body)))
    wait(lambda: _kuberay_says(stage, "refused", refusal.kuberay_words), 60, "KubeRay rejects it", running.tail)
    if kind == "RayCluster":  # Kueue 0.19.2 counts a RayJob that KubeRay rejects as finished
        wait(lambda: "Rejected" in stage.events("refused"), 60, "the job says so", running.tail)
        assert "gcsFaultToleranceOptions is missing" in stage.told("refused", "Rejected")
    stage.ray_cluster("good", workers=1)
    wait(lambda: stage.running(1), 90, "a sound job beside it runs", running.tail)
    assert gangs(written.take()) == {stage.placement("good")["metadata"]["name"]}


def test_a_rejection_that_no_table_has_holds_nothing_until_the_job_is_edited(stage: Stage, running: Controller) -> None:
    """KubeRay's own event is the reason; without the field that it names, the same job is placed and runs."""
    stage.build({"east": 1})
    body = ray_cluster("pi", stage.name, {"workers": 1})
    body["spec"]["workerGroupSpecs"][0] |= IDLE_TIMEOUT
    assert kuberay_faults("RayCluster", body) == (), "the table must not have this rule, or the test shows nothing"
    stage.manager.apply(yaml.safe_dump(body))
    text = stage.told("pi", names.EventReason.REJECTED_BY_KUBERAY)
    assert "(InvalidRayClusterSpec)" in text and "idleTimeoutSeconds is set" in text
    wait(lambda: stage.check("pi").get("message") == text, 30, "the check says the same", running.tail)
    wait(lambda: _holds_nothing(stage), 30, "no share is held", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_PENDING
    explanation = _why(stage, "pi")
    assert (explanation["outcome"], explanation["link"]["reason"]) == ("Refused", names.EventReason.REJECTED_BY_KUBERAY)
    assert "idleTimeoutSeconds is set" in explanation["link"]["sentence"]

    # KubeRay repeats the same event, so its count rises, and the job holds nothing either.
    count = _rejections(stage, "pi")
    _set_idle_timeout(stage, "pi", 2 * IDLE_TIMEOUT["idleTimeoutSeconds"])
    wait(lambda: _rejections(stage, "pi") > count, 30, "KubeRay rejects the edited job", running.tail)
    wait(lambda: stage.check("pi").get("message") == text, 30, "the check still says so", running.tail)
    assert _holds_nothing(stage)

    # This edit only removes a field: no managedFields show when it was.
    _set_idle_timeout(stage, "pi", None)
    wait(lambda: stage.running(1), 60, "the corrected job runs", running.tail)


def test_a_placed_job_that_kuberay_rejects_gives_back_its_share(stage: Stage, running: Controller) -> None:
    """Another check holds the job, so that it has no pod when an edit makes it invalid; a correction is placed again.

    KubeRay accepted the job before, and its status stays as it was when it accepts the correction.
    """
    stage.build({"east": 1})
    stage.hold_manager_admission()
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.check("pi").get("state") == names.CHECK_READY, 60, "it is placed", running.tail)
    wait(lambda: stage.reserving() == 1, 30, "it holds its share", running.tail)
    _set_idle_timeout(stage, "pi", IDLE_TIMEOUT["idleTimeoutSeconds"])
    assert "idleTimeoutSeconds is set" in stage.told("pi", names.EventReason.REJECTED_BY_KUBERAY)
    wait(lambda: _holds_nothing(stage), 60, "its share is given back", running.tail)
    _set_idle_timeout(stage, "pi", None)
    wait(lambda: stage.check("pi").get("state") == names.CHECK_READY, 90, "it is placed again", running.tail)
    wait(lambda: stage.reserving() == 1, 30, "it holds its share again", running.tail)


@pytest.mark.alone
def test_a_rejection_outlives_the_controller(stage: Stage, running: Controller) -> None:
    """The new process has no memory of the edits: KubeRay's event and status are enough, also after an edit."""
    stage.build({"east": 1})
    body = ray_cluster("pi", stage.name, {"workers": 1})
    body["spec"]["workerGroupSpecs"][0] |= IDLE_TIMEOUT
    stage.manager.apply(yaml.safe_dump(body))
    stage.told("pi", names.EventReason.REJECTED_BY_KUBERAY)
    count = _rejections(stage, "pi")
    _set_idle_timeout(stage, "pi", 2 * IDLE_TIMEOUT["idleTimeoutSeconds"])
    wait(lambda: _rejections(stage, "pi") > count, 30, "KubeRay rejects the edited job", running.tail)
    wait(lambda: _holds_nothing(stage), 30, "no share is held", running.tail)
    running.stop()
    running.start()
    written = Written(stage)
    stage.ray_cluster("good", workers=1)
    wait(lambda: stage.running(1), 90, "the new process decides", running.tail)
    assert gangs(written.take()) == {stage.placement("good")["metadata"]["name"]}


def _holds_nothing(stage: Stage) -> bool:
    return stage.reserving() == 0 and stage.leftovers() == []


def _why(stage: Stage, job: str) -> Any:
    config = str(stage.manager.kubeconfig)
    command = [sys.executable, "-m", "adapter", "why", job, "-n", stage.name, "-o", "json", "--kubeconfig", config]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPO).stdout)


def _rejections(stage: Stage, name: str) -> int:
    """How often KubeRay has recorded that it rejects a RayCluster."""
    events = stage.manager.items("events", stage.name)
    own = (event for event in events if event["involvedObject"]["name"] == name and is_rejection(event))
    return sum(event.get("count") or 1 for event in own)


def _set_idle_timeout(stage: Stage, name: str, seconds: int | None) -> None:
    path = "/spec/workerGroupSpecs/0/idleTimeoutSeconds"
    change = {"op": "remove"} if seconds is None else {"op": "add", "value": seconds}
    patch = json.dumps([{**change, "path": path}])
    stage.manager.kubectl("-n", stage.name, "patch", "raycluster", name, "--type=json", "-p", patch)


def _create(stage: Stage, refusal: KubeRayRefusal, number: int) -> Mapping[str, Any]:
    body = refused_job(ray_cluster(f"row-{number}", stage.name, {"workers": 1}), refusal)
    stage.manager.apply(yaml.safe_dump(body))
    return body


def _kuberay_says(stage: Stage, name: str, words: str) -> bool:
    return any(words in message for message in _kuberay_events(stage, name).values())


def _kuberay_events(stage: Stage, name: str) -> dict[str, str]:
    """KubeRay's rejections of a job: reason -> message."""
    events = (event for event in stage.manager.items("events", stage.name) if event["involvedObject"]["name"] == name)
    return {event["reason"]: event["message"] for event in events if event["reason"].startswith("InvalidRay")}
