"""Which slot a pod came with, which pull secrets its template names, and when a worker does its part: ready, or of a service and running."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.unstructured import Raw
from adapter.objects.worker_pod import (
    Slot,
    has_template_slot,
    has_working_ray_node,
    is_planned_slot,
    list_slots,
    planned_slots,
    pull_secrets,
    slot_of,
    without_template_slots,
)
from adapter.objects.workload import PodSet, parse_workload
from tests.unit.builders import make_condition, make_placement, make_pod, make_workload

OURS, THEIRS = {"name": "ours"}, {"name": "theirs"}


def podset(name: str, *secrets: Raw) -> PodSet:
    return PodSet(name, 1, {"spec": {"imagePullSecrets": list(secrets)} if secrets else {}}, frozenset())


@pytest.mark.parametrize(
    ("podsets", "want"),
    [
        pytest.param([], (), id="nothing is known of its group"),
        pytest.param([podset("workers")], (), id="its template names none"),
        pytest.param([podset("workers", OURS, THEIRS)], (OURS, THEIRS), id="all, in their order"),
        pytest.param([podset("head", THEIRS), podset("workers", OURS)], (OURS,), id="not those of another group"),
    ],
)
def test_which_pull_secrets_a_template_names(podsets: list[PodSet], want: tuple[Raw, ...]) -> None:
    pod = make_pod(group="Workers")
    pod["spec"]["imagePullSecrets"] = [{"name": "of-its-account"}]
    assert pull_secrets(pod, replace(parse_workload(make_workload()), podsets=tuple(podsets))) == want


RUNS: Raw = {"running": {}}
WAITS, OVER = {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("labels", "ready", "states", "want"),
    [
        pytest.param({}, True, (), True, id="ready"),
        pytest.param({}, False, (RUNS,), False, id="of a job, and not ready"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, True, (), True, id="of a service, and ready"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, RUNS), True, id="of a service, and all of it runs"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, WAITS), False, id="but for a sidecar"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (OVER,), False, id="it has ended"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (), False, id="nothing of it began"),
        pytest.param({names.RAY_SERVE_LABEL: "false"}, False, (RUNS,), False, id="it serves not"),
        pytest.param({names.RAY_SERVE_LABEL: "true", names.RAY_NODE_TYPE_LABEL: names.HEAD}, False, (RUNS,), False, id="a head"),
    ],
)  # fmt: skip
def test_when_a_worker_does_its_part(labels: dict[str, str], ready: bool, states: tuple[Raw, ...], want: bool) -> None:
    pod = make_pod()
    pod["metadata"]["labels"] |= labels
    pod["status"]["conditions"] = [make_condition("Ready", ready)]
    pod["status"]["containerStatuses"] = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    assert has_working_ray_node(pod) is want


LISTED = "east/1/role-workers/2 west/1/role-workers/2"
SPREAD = st.dictionaries(
    st.sampled_from(["east", "west", "north"]), st.dictionaries(st.sampled_from(["workers", "gpu"]), st.integers(0, 4))
)


@given(SPREAD, st.sampled_from(["workers", "gpu"]))
def test_the_pods_of_a_group_come_with_the_slots_of_the_plan_in_its_order(
    spread: dict[str, dict[str, int]], group: str
) -> None:
    place = parse_placement(make_placement(make_workload(), shares=spread))
    wanted = list(planned_slots(place, make_pod(group=group)))
    pods = [
        make_pod(group=group, index=str(index), listed=list_slots(place, group)) for index in range(len(wanted) + 1)
    ]
    assert [slot_of(pod) for pod in pods] == [*wanted, None], "and one too many comes with none"


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({"index": "0", "listed": LISTED}, "east/1/role-workers/0", id="the first"),
        pytest.param({"index": "3", "listed": LISTED}, "west/1/role-workers/1", id="the last"),
        pytest.param({"index": "4", "listed": LISTED}, "", id="one more than there are"),
        pytest.param({"index": "", "listed": LISTED}, "", id="KubeRay gives no numbers"),
        pytest.param({"index": "3", "listed": ""}, "", id="nothing is listed"),
        pytest.param({"index": "3", "listed": LISTED, "slot": "north/2/role-workers/7"}, "north/2/role-workers/7", id="another one was written"),
        pytest.param({"index": "-1", "listed": LISTED}, "", id="no number"),
        pytest.param({"index": "9" * 5000, "listed": LISTED}, "", id="a number that nobody may read"),
        pytest.param({"index": "\u0663", "listed": LISTED}, "", id="a number in another script"),
        pytest.param({"index": "0", "listed": "east/1/role-workers/" + "9" * 5000}, "", id="a count that nobody may read"),
        pytest.param({"index": "0", "listed": "east/1/role-workers/x"}, "", id="no count"),
        pytest.param({"index": "0", "listed": "east"}, "", id="no slots"),
        pytest.param({"index": "1", "listed": "east/1/role-workers/1  " * 500}, "", id="longer than any of ours"),
        pytest.param({"index": "0", "listed": "7"}, "", id="a cluster without a name: none has such a share"),
    ],
)  # fmt: skip
def test_which_slot_a_pod_came_with(pod: Raw, want: str) -> None:
    assert str(slot_of(make_pod(**pod)) or "") == want
    assert has_template_slot(make_pod(**pod)) is (bool(want) and "slot" not in pod)


def test_a_pod_without_its_slot_is_the_same_pod() -> None:
    pod = make_pod(index="0", listed=LISTED)
    assert slot_of(without_template_slots(pod)) is None
    assert without_template_slots(pod)["metadata"] | {"annotations": pod["metadata"]["annotations"]} == pod["metadata"]


@given(st.text(max_size=30), st.text("east/1rolwks-0 9", max_size=60))
def test_what_is_written_by_hand_breaks_nothing_and_makes_no_slot(index: str, forged: str) -> None:
    """Whoever edits a template may list what he likes: it is a slot of the plan or none."""
    place = parse_placement(make_placement(make_workload()))
    pod = make_pod(index=index, listed=forged)
    assert is_planned_slot(place, pod, slot_of(pod)) is (slot_of(pod) in list(planned_slots(place, pod)))


@pytest.mark.parametrize(
    "text",
    [
        "", "east", "east/1/r", "east/1/r/0/0", "/1/r/0", "east/01/r/0", "east/1_0/r/0", "east/+1/r/0", "east/1/r/00", "east/1/r/-1",
        "east/1/r/\u0663", "east/\u0661/r/0", "east//r/0", "east/1/r/", "east/1/r/ 0", f"east/1/r/{'9' * 10}", f"{'e' * 600}/1/r/0",
        "/" * 5000,
    ],
)  # fmt: skip
def test_a_text_that_no_slot_is_written_as_is_none(text: str) -> None:
    assert Slot.parse(text) is None


@given(st.text(max_size=20), st.integers(0, 10**9 - 1), st.text(max_size=20), st.integers(0, 10**9 - 1))
def test_a_slot_is_read_back_as_it_was_written(cluster: str, round_: int, role: str, index: int) -> None:
    slot = Slot(ShareKey(cluster, round_), role, index)
    assert str(slot) == f"{slot}" == f"{cluster}/{round_}/{role}/{index}"
    assert Slot.parse(str(slot)) == (slot if cluster and "/" not in cluster + role else None)


@given(st.text("east/01٣_9", max_size=20))
def test_what_is_read_as_a_slot_is_what_one_is_written_as(text: str) -> None:
    slot = Slot.parse(text)
    assert slot is None or str(slot) == text


@pytest.mark.parametrize(("shares", "lists"), [(20, True), (21, False)])
def test_a_gang_in_many_pieces_has_its_slots_written_one_by_one(shares: int, lists: bool) -> None:
    """What a template lists stands in each of its pods."""
    place = parse_placement(make_placement(make_workload(), shares={f"c{n}": {"workers": 1} for n in range(shares)}))
    assert bool(list_slots(place, "workers")) is lists
    assert not list_slots(place, "gpu")


def test_nor_does_one_with_names_of_any_length() -> None:
    place = parse_placement(
        make_placement(make_workload(), shares={f"{n}{'c' * 250}": {"workers": 1} for n in range(18)})
    )
    assert not list_slots(place, "workers")
