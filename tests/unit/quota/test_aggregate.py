"""The manager's remote quota is the sum of the worker queues per resource. It is never reduced while a cluster is
unreachable."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects import specs
from adapter.objects.pod_requests import UNLIMITED, parse_quantity
from adapter.objects.unstructured import RawDict as Raw
from adapter.quota import aggregate
from adapter.quota.aggregate import WorkerQueues

CHECK = "rayspan"
KEY = ("team-a", "ray")


def queue(
    name: str = "ray", *, said: str = "true", flavors: Any = ("remote",), check: str = CHECK, **quota: Raw
) -> Raw:
    """A ClusterQueue; `quota` is flavor -> resource -> nominal quota."""
    groups = [
        {
            "coveredResources": list(amounts),
            "flavors": [{"name": flavor, "resources": [{"name": r, "nominalQuota": a} for r, a in amounts.items()]}],
        }
        for flavor, amounts in quota.items()
    ]
    entry = {"name": check, "onFlavors": list(flavors)} if flavors is not None else {"name": check}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "annotations": {names.QUOTA_ANNOTATION: said}},
        "spec": {"resourceGroups": groups, "admissionChecksStrategy": {"admissionChecks": [{"name": "other"}, entry]}},
    }


def worker(leads: dict[tuple[str, str], str] | None = None, **queues: Raw) -> WorkerQueues:
    """A worker cluster; `queues` is ClusterQueue -> flavor -> resource -> nominal quota."""
    leads = {KEY: next(iter(queues), "gone")} if leads is None else leads
    found = [
        {"metadata": {"namespace": n, "name": name}, "spec": {"clusterQueue": target}}
        for (n, name), target in leads.items()
    ]
    return WorkerQueues(found, {name: queue(name, **flavors) for name, flavors in queues.items()})


def small(cpu: object = "4", **more: object) -> WorkerQueues:
    return worker(ray={"any": {"cpu": cpu, **more}})


def after(found: list[aggregate.QuotaChange]) -> dict[str, str]:
    return {change.resource: change.after for change in found}


# --- opting in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "want"), [("true", True), ("false", False), ("", False)])
def test_only_an_annotated_queue_is_aggregated(said: str, want: bool) -> None:
    assert aggregate.is_opted_in(queue(said=said)) is want
    assert not aggregate.is_opted_in({"metadata": {"name": "ray"}})


def test_another_annotation_value_is_reported() -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        aggregate.is_opted_in(queue(said="yes"))
    assert str(error.value) == (
        'ClusterQueue ray: annotation rayspan.dev/quota-from-workers is "yes"; set it to "true" or "false".'
    )


def test_the_check_and_its_flavor_are_found() -> None:
    assert aggregate.check_and_flavor(queue(), {CHECK, "elsewhere"}) == (CHECK, "remote")


@pytest.mark.parametrize(
    ("raw", "ours", "sentence"),
    [
        pytest.param(queue(), set(), "found 0; list one there, or remove the annotation.", id="no check of ours"),
        pytest.param({"metadata": {"name": "ray"}}, {CHECK}, "found 0; list one", id="no checks at all"),
        pytest.param(queue(), {CHECK, "other"}, "found 2; list one there", id="two"),
        pytest.param(queue(flavors=None), {CHECK}, "AdmissionCheck rayspan has 0 onFlavors there: list one.",
            id="all"),
        pytest.param(queue(flavors=["a", "b"]), {CHECK}, "rayspan has 2 onFlavors there: list one.",
            id="two flavors"),
    ],
)  # fmt: skip
def test_a_queue_that_cannot_be_summed_is_reported(raw: Raw, ours: set[str], sentence: str) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        aggregate.check_and_flavor(raw, ours)
    assert str(error.value).startswith("ClusterQueue ray: annotation rayspan.dev/quota-from-workers needs ")
    assert sentence in str(error.value)


# --- the sum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "workers", "want"),
    [
        pytest.param({"cpu": "1"}, {"east": small("4"), "west": small("2500m")}, {"cpu": "6500m"},
            id="the sum of all clusters"),
        pytest.param({"cpu": 6}, {"east": small("4"), "west": small(2)}, {}, id="the quota is the sum already"),
        pytest.param({"cpu": "6000m"}, {"east": small("6")}, {},
            id="the quota is the sum already, in another notation"),
        pytest.param({"cpu": "9"}, {"east": small("4"), "west": small("2")}, {"cpu": "6"},
            id="the quota is reduced, since all clusters are known"),
        pytest.param({"cpu": "9"}, {"east": small("4"), "west": None}, {},
            id="the quota is not reduced while one cluster is unknown"),
        pytest.param({"cpu": "3"}, {"east": small("4"), "west": None}, {"cpu": "4"},
            id="the quota is raised while one cluster is unknown"),
        pytest.param({"cpu": "3"}, {"east": None}, {}, id="all clusters are unknown"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "0"},
            {"east": small("4", memory="512Mi", **{"nvidia.com/gpu": 8}), "west": small("1", memory="1Gi")},
            {"cpu": "5", "memory": "1536Mi", "nvidia.com/gpu": "8"},
            id="each resource is summed by itself",
        ),
        pytest.param({"cpu": "1"}, {"east": small("4", pods="7")}, {"cpu": "4"},
            id="a resource that the manager does not cover"),
        pytest.param({"cpu": "4", "pods": "7"}, {"east": small("4")}, {"pods": "0"},
            id="a resource that no worker cluster has"),
        pytest.param(
            {"cpu": "1"}, {"east": worker(ray={"spot": {"cpu": "2"}, "reserved": {"cpu": "3"}})}, {"cpu": "5"},
            id="all flavors of a worker queue",
        ),
        pytest.param({"cpu": "1"}, {"east": worker({}, ray={"any": {"cpu": "2"}})}, {"cpu": "0"},
            id="no LocalQueue in the worker cluster"),
        pytest.param(
            {"cpu": "1"}, {"east": worker({("team-b", "ray"): "ray"}, ray={"any": {"cpu": "2"}})}, {"cpu": "0"},
            id="a LocalQueue of another namespace",
        ),
        pytest.param({"cpu": "1"}, {"east": worker({KEY: "gone"})}, {"cpu": "0"}, id="a LocalQueue that leads nowhere"),
        pytest.param({"cpu": "5"}, {"east": small("many")}, {}, id="a malformed quota counts as unknown"),
        pytest.param(
            {"cpu": "1", "memory": "1"}, {"east": small("10E", memory="10E"), "west": small("1", memory="1")},
            {"cpu": f"{UNLIMITED}m", "memory": str(UNLIMITED)}, id="more than 64 bits",
        ),
    ],
)  # fmt: skip
def test_the_aggregated_quota(have: Raw, workers: dict[str, WorkerQueues | None], want: dict[str, str]) -> None:
    assert after(aggregate.quota_changes(queue(remote=have), "remote", [KEY], workers)) == want


def test_a_cluster_is_summed_under_the_managers_names() -> None:
    nvidia, amd = "nvidia.com/gpu", "amd.com/gpu"
    renamed = replace(small("4", **{amd: 8, nvidia: 3}), resource_names={nvidia: amd})
    have, same = {"cpu": "1", nvidia: "1", amd: "1"}, small("4", **{nvidia: 2})
    changes = aggregate.quota_changes(queue(remote=have), "remote", [KEY], {"east": renamed, "west": same})
    assert after(changes) == {"cpu": "8", nvidia: "10", amd: "8"}


def test_two_local_queues_of_one_worker_queue_count_once() -> None:
    keys = [KEY, ("team-b", "ray")]
    both = worker(dict.fromkeys(keys, "ray"), ray={"any": {"cpu": "4"}})
    apart = worker(dict(zip(keys, ("one", "two"), strict=True)), one={"any": {"cpu": "4"}}, two={"any": {"cpu": "3"}})
    found = aggregate.quota_changes(queue(remote={"cpu": "1"}), "remote", keys, {"east": both, "west": apart})
    assert after(found) == {"cpu": "11"}
    assert str(found[0]) == "cpu in flavor remote from 1 to 11 (east 4, west 7)"


def test_a_queue_without_a_local_queue_is_left_alone() -> None:
    """No job can be submitted to it, and its admin may be about to create one."""
    assert aggregate.quota_changes(queue(remote={"cpu": "5"}), "remote", [], {"east": small("4")}) == []


def test_other_flavors_are_left_alone() -> None:
    found = aggregate.quota_changes(
        queue(local={"cpu": "1"}, remote={"cpu": "1"}), "remote", [KEY], {"east": small("4")}
    )
    assert [change.indexes for change in found] == [(1, 0, 0)]


# --- the write -------------------------------------------------------------------------------------------------------


def patched(raw: Raw, operations: list[aggregate.PatchOperation]) -> Raw:
    """The object after a JSON patch of tests and replacements; AssertionError if a test fails."""
    result: Raw = copy.deepcopy(raw)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = result
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if operation["op"] == "test":
            assert place[last] == operation["value"], operation["path"]
        else:
            assert operation["op"] == "replace" and last in place
            place[last] = operation["value"]
    return result


BEFORE = queue(local={"cpu": "7"}, remote={"cpu": "1", "memory": "2Gi"})
CHANGES = aggregate.quota_changes(BEFORE, "remote", [KEY], {"east": small("4", memory="2Gi")})


def test_the_patch_changes_only_the_quota() -> None:
    made = patched(BEFORE, aggregate.patch_operations(BEFORE, CHANGES))
    assert made == queue(local={"cpu": "7"}, remote={"cpu": "4", "memory": "2Gi"})


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(BEFORE | {"metadata": BEFORE["metadata"] | {"uid": "another"}}, id="another object of that name"),
        pytest.param(queue(said="false", local={"cpu": "7"}, remote={"cpu": "1"}), id="the admin opted out"),
        pytest.param(queue(local={"cpu": "7"}, remote={"cpu": "2", "memory": "2Gi"}), id="another quota"),
        pytest.param(queue(local={"cpu": "7"}, remote={"memory": "1", "cpu": "1"}), id="another order of resources"),
        pytest.param(queue(remote={"cpu": "7"}, local={"cpu": "1"}), id="another order of flavors"),
    ],
)
def test_the_patch_fails_on_a_changed_object(now: Raw) -> None:
    with pytest.raises(AssertionError):
        patched(now, aggregate.patch_operations(BEFORE, CHANGES))


# --- properties ------------------------------------------------------------------------------------------------------

AMOUNTS = st.one_of(st.integers(0, 10**6), st.integers(0, 10**6).map(lambda milli: f"{milli}m"))
FLEETS = st.dictionaries(
    st.sampled_from(["east", "west", "north"]), st.one_of(st.none(), AMOUNTS.map(small)), min_size=1
)


@given(AMOUNTS, FLEETS)
def test_a_second_aggregation_changes_nothing(have: object, fleet: dict[str, WorkerQueues | None]) -> None:
    raw = queue(remote={"cpu": have})
    found = aggregate.quota_changes(raw, "remote", [KEY], fleet)
    made = patched(raw, aggregate.patch_operations(raw, found))
    assert aggregate.quota_changes(made, "remote", [KEY], fleet) == []


@given(AMOUNTS, FLEETS)
def test_an_unreachable_cluster_never_reduces_the_quota(have: object, fleet: dict[str, WorkerQueues | None]) -> None:
    found = aggregate.quota_changes(queue(remote={"cpu": have}), "remote", [KEY], {**fleet, "hidden": None})
    assert all(parse_quantity(change.after, "cpu") > parse_quantity(have, "cpu") for change in found)
