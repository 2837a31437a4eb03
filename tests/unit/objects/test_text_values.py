"""Values that YAML reads as numbers, booleans or dates, where Kubernetes wants text."""

from datetime import date
from typing import Any

import pytest

from adapter.objects import job_manifest
from adapter.objects.text_values import mapping_faults, template_faults
from adapter.objects.unstructured import Raw
from tests.unit.builders import NAMESPACE
from tests.unit.stores import make_group, make_ray_job

TEXT = ": an API server takes only text there; write it in quotes"


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ({"metadata": {"labels": {"v": 1.5, "ok": "1"}}}, ["metadata.labels has v: 1.5, which is a number"]),
        ({"metadata": {"annotations": {"on": False}}}, ["metadata.annotations has on: false, which is a boolean"]),
        ({"metadata": {"labels": {"day": date(2026, 1, 2)}}}, ["metadata.labels has day: 2026-01-02, which is a date"]),
        ({"spec": {"nodeSelector": {8: "x"}}}, ["spec.nodeSelector has 8: x, whose key is a number"]),
        ({"spec": {"nodeSelector": {"a": None, "b": [1]}}}, ["spec.nodeSelector has b: [1], which is no text"]),
        (
            {"spec": {"containers": [{"command": ["sleep", 5]}]}},
            ["spec.containers[0].command has 5, which is a number"],
        ),
        (
            {"spec": {"initContainers": [{"env": [{"name": "A", "value": 1}, {"name": "B"}]}]}},
            ["spec.initContainers[0].env[A].value is 1, which is a number"],
        ),
        ({}, []),
        ({"metadata": 5, "spec": {"nodeSelector": 5, "containers": [5, {"env": 5, "args": 5}]}}, []),
    ],
)
def test_values_that_are_no_text_are_named(template: Raw, want: list[str]) -> None:
    assert [*template_faults(template)] == [f"{fault}{TEXT}" for fault in want]


def test_start_parameters_are_text() -> None:
    assert [*mapping_faults("rayStartParams", {"num-cpus": 0})] == [
        f"rayStartParams has num-cpus: 0, which is a number{TEXT}"
    ]
    faults = job_manifest.parse_partially(make_ray_job(make_group(1, rayStartParams={"num-cpus": 0})), NAMESPACE).faults
    where = "spec.rayClusterSpec.workerGroupSpecs[0].rayStartParams has num-cpus: 0"
    assert [where in fault for fault in faults] == [True]


def test_a_plan_names_them_and_their_number_is_bounded() -> None:
    group: Any = make_group(1)
    group["template"]["spec"]["nodeSelector"] = {str(number): number for number in range(99)}
    faults = job_manifest.parse_partially(make_ray_job(group), NAMESPACE).faults
    assert len(faults) == job_manifest.MAX_TEXT_FAULTS
    assert faults[0].endswith(f"template.spec.nodeSelector has 0: 0, which is a number{TEXT}.")
