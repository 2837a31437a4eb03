"""A controller that is newer than the CRDs says so, and places no job whose record would lack what it writes."""

import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage, added

pytestmark = [pytest.mark.alone, pytest.mark.long]
GROUPS = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shares/items/properties/groups/items"
ACCESSES = REPO / "kustomize/components/worker-access/workeraccesses.yaml"
PLACEMENTS = REPO / "manifests/crds/placements.yaml"


@pytest.fixture
def older_placements(stage: Stage) -> Iterator[None]:
    """The CRD of Placement from before a share had hosts."""
    crd = yaml.safe_load(PLACEMENTS.read_text())
    patch = json.dumps([{"op": "remove", "path": f"{GROUPS}/properties/hosts"}])
    stage.manager.kubectl("patch", "crd", crd["metadata"]["name"], "--type=json", "-p", patch)
    yield
    stage.manager.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(PLACEMENTS))


def test_an_older_crd_is_told_and_no_half_record_is_written(
    stage: Stage, older_placements: None, running: Controller
) -> None:
    stage.build({"east": 4})
    lacks = "Placement lacks spec.shares[].groups[].hosts. Apply the CRDs of this version"
    wait(lambda: lacks in _active(stage)["message"], 150, "the check says so", running.tail)
    assert (_active(stage)["status"], _active(stage)["reason"]) == ("True", "CRDOutdated")
    stage.ray_cluster("pi", workers=1, hosts=2)
    assert lacks in stage.told("pi", "FailedDispatch")
    assert stage.reserving() == 0 and not stage.manager.items("placements", stage.name)
    stage.manager.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(PLACEMENTS))
    wait(lambda: stage.running(2), 180, "it runs once the CRD is there", running.tail)
    assert _active(stage)["reason"] == "Ready"


@pytest.fixture
def older_accesses(stage: Stage) -> Iterator[None]:
    """The component worker-access, with a CRD from before a grant had a command."""
    with added(stage.manager, "worker-access"):
        crd = yaml.safe_load(ACCESSES.read_text())
        spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
        paths = (f"{spec}/x-kubernetes-validations", f"{spec}/properties/command")
        patch = json.dumps([{"op": "remove", "path": path} for path in paths])
        stage.manager.kubectl("patch", "crd", crd["metadata"]["name"], "--type=json", "-p", patch)
        yield


def test_an_older_crd_of_the_component_is_told_and_stops_no_job(
    stage: Stage, older_accesses: None, running: Controller
) -> None:
    stage.build({"east": 4})
    lacks = "WorkerAccess lacks spec.command. Apply the CRDs of this version (kustomize/components/worker-access)."
    wait(lambda: _active(stage)["message"].endswith(lacks), 150, "the check says so", running.tail)
    assert (_active(stage)["status"], _active(stage)["reason"]) == ("True", "Ready")
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "it runs", running.tail)


def _active(stage: Stage) -> dict[str, str]:
    return {"message": "", **condition(stage.manager.get("admissionchecks", stage.name), names.ACTIVE)}
