"""The README is short, and the job of docs/use.md fits the queues of docs/install.md.

tests/integration/test_readme.py runs their commands.
"""

import re
from typing import Any

import pytest
import yaml

from adapter.objects.pod_requests import parse_quantity
from hack.lab.base.paths import REPO

README = (REPO / "README.md").read_text()
_FENCE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DOORS = ("docs/use.md", "docs/install.md")
_WORKER_CLUSTERS = 2


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", sorted(path.name for path in (REPO / "docs").glob("*.md")))
def test_the_readme_links_each_page(page: str) -> None:
    assert f"](docs/{page})" in README


def test_the_readme_has_five_limits_and_two_entrances() -> None:
    limits = README.partition("## Limits")[2].partition("\n## ")[0]
    assert len(re.findall(r"^- \*\*", limits, re.MULTILINE)) == 5
    doors = README.partition("## Where to start")[2].partition("\n## ")[0]
    assert re.findall(r"^\|[^|]*\| \[(\S+)\]\(", doors, re.MULTILINE) == [*_DOORS]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_the_shown_job_fits_the_small_queues(resource: str) -> None:
    (job,) = map(yaml.safe_load, _FENCE.findall((REPO / "docs/use.md").read_text()))
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    each = parse_quantity(container["resources"]["requests"][resource], resource)
    assert group["replicas"] <= _WORKER_CLUSTERS * (_quota(resource) // each)


def _quota(resource: str) -> int:
    """The quota of a resource in the pages' queue of the worker clusters."""
    objects: list[dict[str, Any]] = list(yaml.safe_load_all((REPO / "manifests/queues/worker/queues.yaml").read_text()))
    (queue,) = (one for one in objects if one["kind"] == "ClusterQueue")
    (group,) = queue["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    (found,) = (one["nominalQuota"] for one in flavor["resources"] if one["name"] == resource)
    return parse_quantity(found, resource)
