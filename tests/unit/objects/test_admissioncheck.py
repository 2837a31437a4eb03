"""Which checks of a ClusterQueue are ours, and which worker groups they cover."""

from dataclasses import replace

import pytest

from adapter import names
from adapter.objects import admissioncheck
from adapter.objects.admissioncheck import read_check
from adapter.objects.queues import read_cluster_queue
from adapter.objects.rayjob import read_ray_job
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, parse_workload
from tests.unit.builders import CHECK, make_check, make_cluster_queue, make_workload
from tests.unit.stores import make_ray_job

FOREIGN = {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}}
NAMELESS = {"metadata": {"name": "empty"}}


def queue(*checks: Raw) -> Raw:
    return make_cluster_queue(1, admissionChecksStrategy={"admissionChecks": list(checks)})


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param({}, {}, id="a queue without checks"),
        pytest.param(make_cluster_queue(1), {}, id="a queue without a strategy"),
        pytest.param(make_cluster_queue(1, admissionChecksStrategy={}), {}, id="a queue with an empty strategy"),
        pytest.param(
            queue({"name": "b"}, {"name": "a"}), {"b": (), "a": ()}, id="checks on every flavor keep their order"
        ),
        pytest.param(queue({"name": "a", "onFlavors": ["x", "y"]}), {"a": ("x", "y")}, id="a check on some flavors"),
    ],
)
def test_which_checks_a_queue_lists(raw: Raw, want: dict[str, tuple[str, ...]]) -> None:
    assert list(read_cluster_queue(raw).checks.items()) == list(want.items())


def test_which_checks_are_ours() -> None:
    assert admissioncheck.our_checks(map(read_check, [FOREIGN, make_check(), NAMELESS, {}])) == {CHECK}
    assert [read_check(raw).controller for raw in (make_check(), FOREIGN, NAMELESS)] == [
        names.CONTROLLER_NAME,
        "example.com/budget",
        "",
    ]


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        pytest.param({"name": CHECK}, [CHECK], id="a check that the Workload has already"),
        pytest.param({"name": "b"}, [CHECK, "b"], id="a check on every flavor"),
        pytest.param(
            {"name": "b", "onFlavors": ["x", "remote"]}, [CHECK, "b"], id="a check on a flavor that a podset was given"
        ),
        pytest.param({"name": "b", "onFlavors": ["x"]}, [CHECK], id="a check on another flavor"),
    ],
)
def test_which_checks_a_workload_will_have(entry: Raw, want: list[str]) -> None:
    """Checks on some flavors are added after the reservation, each beside those that the Workload has before it."""
    work = parse_workload(make_workload(groups={"a": 1}))
    podsets = (PodSet("a", 1, {}, frozenset({"remote"})), PodSet("b", 1, {}, frozenset()))
    assert admissioncheck.expected_checks(replace(work, podsets=podsets), read_cluster_queue(queue(entry))) == want


@pytest.mark.parametrize(
    ("on_flavors", "want"),
    [
        pytest.param(None, ["a", "b", "c", "empty"], id="a check on every flavor covers all worker groups"),
        pytest.param([], ["a", "b", "c", "empty"], id="a check with an empty list of flavors covers all worker groups"),
        pytest.param(["remote"], ["b", "c", "empty"], id="a check on a flavor covers the groups with that flavor"),
        pytest.param(
            ["remote", "local"],
            ["a", "b", "c", "empty"],
            id=("a check on several flavors covers the groups with one of them"),
        ),
        pytest.param(["other"], [], id="a check on other flavors covers no group"),
    ],
)
def test_which_worker_groups_a_check_covers(on_flavors: list[str] | None, want: list[str]) -> None:
    """It covers neither the head nor the submitter, whatever their flavor. A group without workers may get some
    later."""
    work = parse_workload(make_workload(groups={"a": 1, "b": 2, "c": 1, "empty": 0, names.SUBMITTER: 1}))
    given = {"a": {"local"}, "c": {"remote", "disk"}}
    podsets = tuple(PodSet(p.name, p.count, {}, frozenset(given.get(p.name, {"remote"}))) for p in work.podsets)
    entry = {"name": CHECK} if on_flavors is None else {"name": CHECK, "onFlavors": on_flavors}
    cluster_queue = read_cluster_queue(queue({"name": "budget", "onFlavors": ["x"]}, entry))
    covered = admissioncheck.covered_groups(
        replace(work, podsets=podsets), CHECK, cluster_queue, read_ray_job(make_ray_job())
    )
    assert [podset.name for podset in covered] == want
