"""With the component job-labels, `kubectl get -L rayspan.dev/clusters` shows where a job's workers are.

tests/integration/test_rights.py has what the account may not write by it.
"""

import pytest

from adapter import names
from adapter.objects.unstructured import label
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage, added

pytestmark = [pytest.mark.alone, pytest.mark.long]  # a role comes and goes


def test_a_job_is_labelled_with_the_clusters_of_its_workers(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("wide", workers=2)
    wait(lambda: stage.running(2), 90, "both workers run", running.tail)
    assert _label(stage, "wide") == "", "without the component, nothing of a job is written"
    with added(stage.manager, "job-labels"):
        wait(lambda: _label(stage, "wide") == "east_west", 60, "it has the label", running.tail)
        shown = stage.manager.kubectl("-n", stage.name, "get", "rayclusters", "-L", names.CLUSTERS_LABEL)
        assert [line.split()[-1] for line in shown.splitlines()] == ["CLUSTERS", "east_west"]

        remove = f"{names.CLUSTERS_LABEL}-"
        stage.manager.kubectl("-n", stage.name, "label", "raycluster", "wide", remove)
        wait(lambda: _label(stage, "wide") == "east_west", 60, "a removed label is written again", running.tail)

        patch = '{"spec":{"active":false}}'
        name = stage.workload("wide")["metadata"]["name"]
        stage.manager.kubectl(
            "-n", stage.name, "patch", f"workload.{names.KUEUE_DOMAIN}", name, "--type=merge", "-p", patch
        )
        wait(lambda: _label(stage, "wide") == "", 60, "a job that waits again has none", running.tail)


def _label(stage: Stage, job: str) -> str:
    return label(stage.manager.get("rayclusters", job, stage.name), names.CLUSTERS_LABEL)
