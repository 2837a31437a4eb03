"""What is far too large is told in a sentence, whatever it holds; what any stock job has is taken."""

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
    """A pod template whose field has so many entries, and that has nothing else."""
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
def test_a_field_may_have_so_many_entries_and_not_one_more(limit: SizeLimit) -> None:
    assert size_limits.first_excess(template(limit, limit.max_entries)) == ""
    said = size_limits.first_excess(template(limit, limit.max_entries + 1))
    assert (
        said
        == f"{limit.field} has {limit.max_entries + 1} entries, and at most {limit.max_entries} are taken: {limit.remedy}"
    )


@pytest.mark.parametrize("limit", LIMITS, ids=by_field)
def test_whatever_is_gone_through_has_a_limit_that_is_asked_for_first(limit: SizeLimit) -> None:
    outer = limit.field
    while "[]" in outer:
        outer, _, _ = outer.rpartition("[]")
        assert outer in [one.field for one in LIMITS[: LIMITS.index(limit)]]


def test_the_entries_of_several_count_together() -> None:
    env = [{"name": f"E{number}", "value": "x"} for number in range(300)]
    spec = {"containers": [{"name": "ray", "env": env}, {"name": "sidecar", "env": env}]}
    assert size_limits.first_excess({"spec": spec}).startswith(
        "spec.containers[].env has 600 entries, and at most 512 "
    )


@pytest.mark.parametrize("odd", [None, 3, "text", [], {}, [3], {"containers": 3}, {"containers": [[], 3, None]}])
def test_what_is_no_list_is_not_counted(odd: object) -> None:
    assert size_limits.first_excess({"metadata": odd, "spec": odd}) == ""


def test_who_asks_for_thousands_of_terms_is_refused_before_anything_is_compared() -> None:
    """The terms hold what no rule could read: nothing but their number is looked at."""
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [None] * 18_000}}
    }
    podset = PodSet("workers", 1, make_template("1", affinity=affinity), frozenset())
    job = read_ray_job(make_ray_job())
    assert job_validation.workload_rejection(parse_workload(make_workload()), job, CHECK, [podset], None, []) == (
        "RayJob train: worker group workers: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
        "nodeSelectorTerms has 18000 entries, and at most 32 are taken: join terms that differ in one label into one with "
        'operator "In". Delete the job, and submit it again without that.'
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [{}] * 16}, True, id="as many as a worker may have"),
        pytest.param({"containers": [{}] * 17}, False, id="more"),
        pytest.param({"initContainers": [{}] * 17}, False, id="of those before it"),
        pytest.param({"overhead": dict.fromkeys(map(str, range(33)), "1")}, False, id="resources"),
        pytest.param({"tolerations": [{}] * 1000}, True, id="what is not added up"),
    ],
)
def test_what_can_be_added_up(spec: Raw, want: bool) -> None:
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
    """A third of each would do for all of them."""
    third = [limit._replace(max_entries=limit.max_entries // 3) for limit in LIMITS]
    found = [one for raw in yaml.safe_load_all(path.read_text()) for one in templates(raw)]
    assert found and not any(list(size_limits._find_excesses(one, third)) for one in found)
