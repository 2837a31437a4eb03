"""A job that is far too large is rejected in a sentence; any stock job is accepted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.admission import job_validation, size_limits
from adapter.admission.size_limits import LIMITS, SizeLimit
from adapter.objects.rayjob import read_ray_job
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, parse_workload
from hack.lab.base.paths import REPO
from tests.unit.builders import CHECK, make_workload
from tests.unit.stores import make_ray_job, make_template

MAPPINGS = ("nodeSelector", "labels", "annotations", "requests", "limits", "overhead")
TERMS = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]


def template(limit: SizeLimit, entries: int) -> Raw:
    """A pod template with this number of entries in the limit's field, and nothing else."""
    *steps, last = limit.field.split(".")
    names = [str(number) for number in range(entries)]
    found: Any = dict.fromkeys(names, "1") if last in MAPPINGS else names
    found = {last: found}
    for step in reversed(steps):
        found = {step.removesuffix("[]"): [found] if step.endswith("[]") else found}
    return dict(found)


def by_field(limit: SizeLimit) -> str:
    return limit.field


@pytest.mark.parametrize("limit", LIMITS, ids=by_field)
def test_a_field_may_have_its_maximum_and_not_one_more(limit: SizeLimit) -> None:
    assert size_limits.first_excess(template(limit, limit.max_entries)) == ""
    message = size_limits.first_excess(template(limit, limit.max_entries + 1))
    counts = f"has {limit.max_entries + 1} entries, and at most {limit.max_entries} are allowed"
    assert message == f"{limit.field} {counts}: {limit.remedy}"


@pytest.mark.parametrize("limit", LIMITS, ids=by_field)
def test_every_list_that_is_read_has_a_limit_that_is_checked_first(limit: SizeLimit) -> None:
    outer = limit.field
    while "[]" in outer:
        outer, _, _ = outer.rpartition("[]")
        assert outer in [one.field for one in LIMITS[: LIMITS.index(limit)]]


def test_the_entries_of_several_lists_count_together() -> None:
    env = [{"name": f"E{number}", "value": "x"} for number in range(300)]
    spec = {"containers": [{"name": "ray", "env": env}, {"name": "sidecar", "env": env}]}
    assert size_limits.first_excess({"spec": spec}).startswith(
        "spec.containers[].env has 600 entries, and at most 512 "
    )


@pytest.mark.parametrize("odd", [None, 3, "text", [], {}, [3], {"containers": 3}, {"containers": [[], 3, None]}])
def test_a_value_that_is_no_list_is_not_counted(odd: object) -> None:
    assert size_limits.first_excess({"metadata": odd, "spec": odd}) == ""


def test_thousands_of_terms_are_rejected_before_any_is_compared() -> None:
    """No rule could read these terms: only their number is checked."""
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [None] * 18_000}}
    }
    podset = PodSet("workers", 1, make_template("1", affinity=affinity), frozenset())
    job = read_ray_job(make_ray_job())
    assert job_validation.workload_rejection(parse_workload(make_workload()), job, CHECK, [podset], None, []) == (
        "RayJob train: worker group workers: "
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms has 18000 "
        'entries, and at most 32 are allowed: join terms that differ in one label into one with operator "In". Delete '
        "the job, correct it, and submit it again."
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [{}] * 16}, True, id="the maximum of containers"),
        pytest.param({"containers": [{}] * 17}, False, id="one container too many"),
        pytest.param({"initContainers": [{}] * 17}, False, id="one init container too many"),
        pytest.param(
            {"overhead": dict.fromkeys(map(str, range(33)), "1")},
            False,
            id="one resource of the overhead too many",
        ),
        pytest.param({"tolerations": [{}] * 1000}, True, id="a list that is not added up"),
    ],
)
def test_requests_are_added_up_within_the_limits(spec: Raw, want: bool) -> None:
    assert size_limits.has_bounded_requests({"spec": spec}) is want


def templates(found: object) -> Iterator[Raw]:
    if isinstance(found, dict):
        if isinstance(found.get("template"), dict):
            yield found["template"]
        for one in found.values():
            yield from templates(one)
    for one in found if isinstance(found, list) else ():
        yield from templates(one)


@pytest.mark.parametrize("path", sorted((REPO / "tests" / "corpus").glob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_samples_are_far_from_any_limit(path: Path) -> None:
    """A third of each limit would suffice for all of them."""
    third = [limit._replace(max_entries=limit.max_entries // 3) for limit in LIMITS]
    found = [one for raw in yaml.safe_load_all(path.read_text()) for one in templates(raw)]
    assert found and not any(list(size_limits._find_excesses(one, third)) for one in found)
