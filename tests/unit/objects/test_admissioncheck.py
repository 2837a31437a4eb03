"""Which checks of a ClusterQueue are ours, and which worker groups do they cover?"""

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
        pytest.param({}, {}, id="nothing is known of it"),
        pytest.param(make_cluster_queue(1), {}, id="without a strategy"),
        pytest.param(make_cluster_queue(1, admissionChecksStrategy={}), {}, id="with an empty one"),
        pytest.param(queue({"name": "b"}, {"name": "a"}), {"b": (), "a": ()}, id="in its order, on every flavor"),
        pytest.param(queue({"name": "a", "onFlavors": ["x", "y"]}), {"a": ("x", "y")}, id="on some flavors"),
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
        pytest.param({"name": CHECK}, [CHECK], id="it stands there already"),
        pytest.param({"name": "b"}, [CHECK, "b"], id="one on every flavor"),
        pytest.param(
            {"name": "b", "onFlavors": ["x", "remote"]}, [CHECK, "b"], id="one on a flavor that a podset was given"
        ),
        pytest.param({"name": "b", "onFlavors": ["x"]}, [CHECK], id="one on another flavor"),
    ],
)
def test_which_checks_a_workload_will_have(entry: Raw, want: list[str]) -> None:
    """Those on some flavors come after the reservation, one by one with what stands there before it."""
    work = parse_workload(make_workload(groups={"a": 1}))
    podsets = (PodSet("a", 1, {}, frozenset({"remote"})), PodSet("b", 1, {}, frozenset()))
    assert admissioncheck.expected_checks(replace(work, podsets=podsets), read_cluster_queue(queue(entry))) == want


@pytest.mark.parametrize(
    ("on_flavors", "want"),
    [
        pytest.param(None, ["a", "b", "c", "empty"], id="on every flavor: all worker groups"),
        pytest.param([], ["a", "b", "c", "empty"], id="the same, with an empty list"),
        pytest.param(["remote"], ["b", "c", "empty"], id="those that were given its flavor"),
        pytest.param(["remote", "local"], ["a", "b", "c", "empty"], id="or one of its flavors"),
        pytest.param(["other"], [], id="none of them"),
    ],
)
def test_which_worker_groups_a_check_covers(on_flavors: list[str] | None, want: list[str]) -> None:
    """Neither the head nor the submitter, whatever flavor they have; a group without workers may get some."""
    work = parse_workload(make_workload(groups={"a": 1, "b": 2, "c": 1, "empty": 0, names.SUBMITTER: 1}))
    given = {"a": {"local"}, "c": {"remote", "disk"}}
    podsets = tuple(PodSet(p.name, p.count, {}, frozenset(given.get(p.name, {"remote"}))) for p in work.podsets)
    entry = {"name": CHECK} if on_flavors is None else {"name": CHECK, "onFlavors": on_flavors}
    cluster_queue = read_cluster_queue(queue({"name": "budget", "onFlavors": ["x"]}, entry))
    covered = admissioncheck.covered_groups(
        replace(work, podsets=podsets), CHECK, cluster_queue, read_ray_job(make_ray_job())
    )
    assert [podset.name for podset in covered] == want
