"""The template slot of a pod, the pull secrets of its template, and when its Ray node works."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.replica import open_slots
from adapter.objects.unstructured import NAME_PATTERN, Raw
from adapter.objects.worker_pod import (
    Slot,
    has_template_slot,
    has_working_ray_node,
    is_planned_slot,
    list_slots,
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
        pytest.param([], (), id="the group is unknown"),
        pytest.param([podset("workers")], (), id="the template names no secret"),
        pytest.param(
            [podset("workers", OURS, THEIRS)], (OURS, THEIRS), id="the template names two secrets, in their order"
        ),
        pytest.param(
            [podset("head", THEIRS), podset("workers", OURS)], (OURS,), id="secrets of another group are left out"
        ),
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
        pytest.param({}, False, (RUNS,), False, id="a worker of a job that is not ready"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, True, (), True, id="a ready worker of a service"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, RUNS), True,
            id="a worker of a service whose containers all run"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (RUNS, WAITS), False,
            id="a worker of a service whose sidecar waits"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (OVER,), False, id="a worker of a service that has ended"),
        pytest.param({names.RAY_SERVE_LABEL: "true"}, False, (), False,
            id="a worker of a service without container states"),
        pytest.param({names.RAY_SERVE_LABEL: "false"}, False, (RUNS,), False, id="a worker with a false Serve label"),
        pytest.param({names.RAY_SERVE_LABEL: "true", names.RAY_NODE_TYPE_LABEL: names.HEAD}, False, (RUNS,), False,
            id="a head of a service"),
    ],
)  # fmt: skip
def test_when_a_ray_node_works(labels: dict[str, str], ready: bool, states: tuple[Raw, ...], want: bool) -> None:
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
def test_the_template_slots_of_a_group_are_those_of_the_plan_in_order(
    spread: dict[str, dict[str, int]], group: str
) -> None:
    place = parse_placement(make_placement(make_workload(), shares=spread))
    wanted = list(open_slots(place, make_pod(group=group), (), None))
    pods = [
        make_pod(group=group, index=str(index), listed=list_slots(place, group)) for index in range(len(wanted) + 1)
    ]
    assert [slot_of(pod) for pod in pods] == [*wanted, None], "and one too many comes with none"


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param({"index": "0", "listed": LISTED}, "east/1/role-workers/0", id="the first slot"),
        pytest.param({"index": "3", "listed": LISTED}, "west/1/role-workers/1", id="the last slot"),
        pytest.param({"index": "4", "listed": LISTED}, "", id="one index more than there are slots"),
        pytest.param({"index": "", "listed": LISTED}, "", id="KubeRay sets no index"),
        pytest.param({"index": "3", "listed": ""}, "", id="no slots are listed"),
        pytest.param({"index": "3", "listed": LISTED, "slot": "north/2/role-workers/7"}, "north/2/role-workers/7",
            id="another slot was written"),
        pytest.param({"index": "-1", "listed": LISTED}, "", id="a negative index"),
        pytest.param({"index": "9" * 5000, "listed": LISTED}, "", id="an index too long to parse"),
        pytest.param({"index": "\u0663", "listed": LISTED}, "", id="an index in another script"),
        pytest.param({"index": "0", "listed": "east/1/role-workers/" + "9" * 5000}, "",
            id="a count too long to parse"),
        pytest.param({"index": "0", "listed": "east/1/role-workers/x"}, "", id="a malformed count"),
        pytest.param({"index": "0", "listed": "east"}, "", id="a malformed list"),
        pytest.param({"index": "1", "listed": "east/1/role-workers/1  " * 500}, "",
            id="a list longer than any of ours"),
        pytest.param({"index": "0", "listed": "7"}, "", id="a list without a cluster"),
    ],
)  # fmt: skip
def test_which_template_slot_a_pod_has(pod: Raw, want: str) -> None:
    assert str(slot_of(make_pod(**pod)) or "") == want
    assert has_template_slot(make_pod(**pod)) is (bool(want) and "slot" not in pod)


def test_a_pod_without_template_slots_is_otherwise_unchanged() -> None:
    pod = make_pod(index="0", listed=LISTED)
    assert slot_of(without_template_slots(pod)) is None
    assert without_template_slots(pod)["metadata"] | {"annotations": pod["metadata"]["annotations"]} == pod["metadata"]


@given(st.text(max_size=30), st.text("east/1rolwks-0 9", max_size=60))
def test_a_forged_template_slot_is_a_planned_slot_or_none(index: str, forged: str) -> None:
    """A user may write any list into a template."""
    place = parse_placement(make_placement(make_workload()))
    pod = make_pod(index=index, listed=forged)
    assert is_planned_slot(place, pod, slot_of(pod)) is (slot_of(pod) in list(open_slots(place, pod, (), None)))


@pytest.mark.parametrize(
    "text",
    [
        "", "east", "east/1/r", "east/1/r/0/0", "/1/r/0", "east/01/r/0", "east/1_0/r/0", "east/+1/r/0", "east/1/r/00",
        "east/1/r/-1",
        "east/1/r/\u0663", "east/\u0661/r/0", "east//r/0", "east/1/r/", "east/1/r/ 0", f"east/1/r/{'9' * 10}",
        f"{'e' * 600}/1/r/0",
        "\x1b[1A\x1b[2Keast/1/r/0", "East/1/r/0", "e ast/1/r/0", "../1/r/0", f"{'e' * 254}/1/r/0", "east/1/\x1b[8m/0",
        "/" * 5000,
    ],
)  # fmt: skip
def test_a_malformed_slot_is_rejected(text: str) -> None:
    assert Slot.parse(text) is None


@given(
    st.from_regex(NAME_PATTERN, fullmatch=True),
    st.integers(0, 10**9 - 1),
    st.text("abc019-", max_size=20),
    st.integers(0, 10**9 - 1),
)
def test_a_slot_is_read_back_as_it_was_written(cluster: str, round_: int, role: str, index: int) -> None:
    slot = Slot(ShareKey(cluster, round_), role, index)
    assert str(slot) == f"{slot}" == f"{cluster}/{round_}/{role}/{index}"
    assert Slot.parse(str(slot)) == slot


@given(st.text("east/01٣_9", max_size=20))
def test_only_the_canonical_text_is_a_slot(text: str) -> None:
    slot = Slot.parse(text)
    assert slot is None or str(slot) == text


@pytest.mark.parametrize(("shares", "lists"), [(20, True), (21, False)])
def test_a_gang_of_many_shares_has_no_template_slots(shares: int, lists: bool) -> None:
    """A template's list is in each of its pods, so its length is bounded."""
    place = parse_placement(make_placement(make_workload(), shares={f"c{n}": {"workers": 1} for n in range(shares)}))
    assert bool(list_slots(place, "workers")) is lists
    assert not list_slots(place, "gpu")


def test_a_gang_with_very_long_names_has_no_template_slots() -> None:
    place = parse_placement(
        make_placement(make_workload(), shares={f"{n}{'c' * 250}": {"workers": 1} for n in range(18)})
    )
    assert not list_slots(place, "workers")
