"""The judges of `make gangs`: over-commitment, and the best use that a packing could have reached."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.trials import quotausage
from hack.trials.gangs import draw, report
from hack.trials.gangs.course import Course
from hack.trials.gangs.draw import Gang
from hack.trials.sampler import Sample
from tests.unit.builders import make_condition

CELL = ("any", "cpu")


def queue(name: str, nominal: int, *, cohort: str = "", borrows: int | None = None) -> quotausage.Queue:
    limit = {} if borrows is None else {"borrowingLimit": str(borrows)}
    row = {"name": "cpu", "nominalQuota": str(nominal), **limit}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [row]}]}]
    return quotausage.queue({"metadata": {"name": name}, "spec": {"cohortName": cohort, "resourceGroups": groups}})


def share(cpu: str, *conditions: str, to: str = "a", place: str = "train-ab12") -> Raw:
    assignment = {"flavors": {"cpu": "any"}, "resourceUsage": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "metadata": {"name": "w", "labels": {names.PLACEMENT_LABEL: place}},
        "status": {
            "conditions": [make_condition(kind) for kind in conditions],
            "admission": {"clusterQueue": to, "podSetAssignments": [assignment]},
        },
    }


def test_reserved_quota_of_workloads() -> None:
    """Waiting and finished Workloads hold nothing; an evicted one holds its quota until the reservation ends."""
    held = (names.QUOTA_RESERVED,)
    workloads = [share("2", *held), share("1500m", *held, to="b"), share("4", *held, names.FINISHED), share("8")]
    evicted = share("1", *held, names.EVICTED)
    assert quotausage.reserved([*workloads, evicted]) == {"a": {CELL: 3000}, "b": {CELL: 1500}}
    assert quotausage.by_job([*workloads, evicted], "cpu") == {"train": 4500}


@pytest.mark.parametrize(
    ("queues", "used", "want"),
    [
        pytest.param([queue("a", 2)], {"a": 2000}, [], id="use up to the nominal quota"),
        pytest.param(
            [queue("a", 2)], {"a": 2001}, ["ClusterQueue a uses 2001m cpu, and may use 2"],
            id="use beyond the nominal quota",
        ),
        pytest.param([queue("a", 2, borrows=2)], {"a": 4000}, [], id="use up to the borrowing limit"),
        pytest.param(
            [queue("a", 2), queue("b", 2)], {"a": 3000}, ["ClusterQueue a uses 3 cpu, and may use 2"],
            id="no borrowing without a cohort",
        ),
        pytest.param(
            [queue("a", 2, cohort="c"), queue("b", 2, cohort="c")], {"a": 4000}, [], id="use up to the cohort's quota",
        ),
        pytest.param(
            [queue("a", 2, cohort="c"), queue("b", 2, cohort="c")],
            {"a": 3000, "b": 2000},
            ["cohort c uses 5 cpu, and may use 4"],
            id="quota lent twice in the cohort",
        ),
        pytest.param(
            [queue("a", 2, cohort="c", borrows=1), queue("b", 2, cohort="c")],
            {"a": 4000},
            ["ClusterQueue a uses 4 cpu, and may use 3"],
            id="use beyond the borrowing limit within the cohort",
        ),
    ],
)  # fmt: skip
def test_use_beyond_quota(queues: list[quotausage.Queue], used: dict[str, int], want: list[str]) -> None:
    assert quotausage.beyond(queues, {name: {CELL: amount} for name, amount in used.items()}) == want


NOW = datetime(2026, 1, 1, 0, 1, 0, tzinfo=UTC).timestamp()
IN_GRACE, GRACE_OVER = (
    "2026-01-01T00:01:20Z",
    "2026-01-01T00:00:59Z",
)  # deletionTimestamp is the end of the grace period
MADE = "2026-01-01T00:00:30Z"


def pod(*, of: str = "w", born: str = MADE, ends: str = "", gated: bool = False, phase: str = "Running") -> Raw:
    """A remote pod that requests a CPU, of the share `of`."""
    gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]} if gated else {}
    leaves = {"deletionTimestamp": ends} if ends else {}
    return {
        "metadata": {
            "name": "p",
            "labels": {names.QUEUE_LABEL: "ray"},
            "annotations": {names.GROUP_NAME_ANNOTATION: of},
            "creationTimestamp": born,
            **leaves,
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **gates},
        "status": {"phase": phase},
    }


def held(cpu: str, *, uid: str = "u", since: str = "2026-01-01T00:00:20Z", evicted: bool = False) -> Raw:
    """A share that holds quota."""
    made = share(cpu, names.QUOTA_RESERVED, *([names.EVICTED] if evicted else []))
    made["metadata"] |= {"uid": uid, "creationTimestamp": since}
    return made


def test_running_pods_count_and_waiting_ones_do_not() -> None:
    pods = quotausage.in_use(quotausage.running([pod(), pod(), pod(gated=True), pod(phase="Failed")], NOW))
    assert pods["ray"]["cpu"] == 2000
    assert quotausage.pods_beyond([queue("a", 2)], pods) == []
    assert quotausage.pods_beyond([queue("a", 1)], pods) == ["pods uses 2 cpu, and may use 1"]


@pytest.mark.parametrize(
    ("leaving", "before", "after", "counts"),
    [
        pytest.param(pod(ends=IN_GRACE), held("1"), held("1"), True, id="the share holds quota"),
        pytest.param(
            pod(ends=IN_GRACE), held("1", evicted=True), held("1", evicted=True), True,
            id="the share is evicted and still holds quota",
        ),
        pytest.param(
            pod(ends=GRACE_OVER), held("1"), held("1"), False,
            id="the grace period is over, so Kueue does not count the pod",
        ),
        pytest.param(pod(ends=IN_GRACE), held("1"), share("1"), False, id="Kueue gave the quota up between the lists"),
        pytest.param(pod(ends=IN_GRACE), share("1"), held("1"), False, id="the share got quota between the lists"),
        pytest.param(
            pod(ends=IN_GRACE), held("1"), None, False, id="the share was deleted, so Kueue does not count the pod",
        ),
        pytest.param(pod(ends=IN_GRACE), held("1"), held("1", uid="v"), False, id="another share with the same name"),
        pytest.param(pod(ends=IN_GRACE, of="x"), held("1"), held("1"), False, id="a pod of another share"),
        pytest.param(
            pod(ends=IN_GRACE, born="2026-01-01T00:00:10Z"), held("1"), held("1"), False,
            id="a pod older than its share",
        ),
        pytest.param(pod(), None, None, True, id="a pod that is not being deleted counts without a share"),
    ],
)  # fmt: skip
def test_a_deleted_pod_counts_while_its_share_holds_quota(
    leaving: Raw, before: Raw | None, after: Raw | None, counts: bool
) -> None:
    found = quotausage.throughout([before] if before else [], [after] if after else [])
    assert bool(quotausage.running([leaving], NOW, found)) is counts


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([pod(), pod()], [], id="as many pods as the share holds"),
        pytest.param([pod(), pod(ends=IN_GRACE)], [], id="one of the pods is being deleted"),
        pytest.param([pod(), pod(gated=True), pod(ends=IN_GRACE)], [], id="a successor waits at its scheduling gate"),
        pytest.param([pod(), pod(), pod(ends=GRACE_OVER)], [], id="the deleted pod's grace period is over"),
        pytest.param(
            [pod(), pod(), pod(ends=IN_GRACE)],
            ["pods of Workload w uses 3 cpu, and may use 2"],
            id="a successor runs before the deleted pod has ended",
        ),
        pytest.param(
            [pod(), pod(), pod()], ["pods of Workload w uses 3 cpu, and may use 2"], id="one slot with two pods"
        ),
        pytest.param([pod(of="x"), pod(of="x"), pod(of="x")], [], id="pods of an unknown share"),
    ],
)
def test_a_share_whose_pods_use_more_than_it_holds(pods: list[Raw], want: list[str]) -> None:
    found = quotausage.throughout([held("2")], [held("2")])
    assert quotausage.shares_beyond(quotausage.running(pods, NOW, found), found) == want


def test_a_growing_share_holds_the_larger_of_both_values() -> None:
    found = quotausage.throughout([held("3")], [held("1")])
    assert quotausage.shares_beyond([pod(), pod(), pod()], found) == []


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 30))
def test_best_is_the_largest_sum_that_fits(needs: list[int], capacity: int) -> None:
    sums = {0}
    for need in needs:
        sums |= {one + need for one in sums}
    assert draw.best(needs, capacity) == max(one for one in sums if one <= capacity)


def test_gangs_of_a_seed_are_reproducible_and_fit_the_fleet() -> None:
    drawn = draw.gangs(40, 7, 80)
    assert drawn == draw.gangs(40, 7, 80) != draw.gangs(40, 8, 80)
    assert all(1 <= gang.needs <= 32 for gang in drawn)
    assert any(gang.needs > 16 for gang in drawn), "some need more than one of five clusters"


FOURTHS = [Gang(f"gang-{number}", 1, 1, 9) for number in range(8)]  # of a cluster with four CPUs


@pytest.mark.parametrize(
    ("at_once", "well"),
    [
        pytest.param(4, True, id="four gangs at a time"),
        pytest.param(2, False, id="two gangs at a time"),
        pytest.param(1, False, id="one gang at a time"),
    ],
)
def test_capacity_is_free_only_between_two_gangs(at_once: int, well: bool) -> None:
    """Gangs of one worker fit in any free CPU. Each holds its CPU for nine seconds, with a second between two."""
    starts = {gang.name: 1.0 + 10 * (number // at_once) for number, gang in enumerate(FOURTHS)}
    times = [at / 10 for at in range(1000)]
    held = [Counter({name: 1000 for name, began in starts.items() if began <= at < began + 9}) for at in times]
    samples = [Sample(at + 1e-6, "east", jobs, {}, ()) for at, jobs in zip(times, held, strict=True)]
    free, most = report.stood_free(course(*FOURTHS, ended={}), samples, 1, 4)
    assert most == (4 + 8) * report.TURN, "a free CPU is one that somebody could have"
    assert (free <= most) is well


def course(*gangs: Gang, ended: dict[str, float]) -> Course:
    return Course(None, gangs, 0.0, {}, ended)  # type: ignore[arg-type]


def test_use_counts_gangs_that_have_not_ended_while_others_wait() -> None:
    """One gang holds 2 of 4 CPUs for a second while another of 2 waits; then both hold theirs and none waits."""
    seen = course(Gang("one", 2, 1, 9), Gang("two", 2, 1, 9), Gang("gone", 4, 1, 0), ended={"gone": -1.0})
    jobs = [({"one": 2000, "gone": 4000}, 0.0), ({"one": 2000, "two": 2000}, 1.0), ({"one": 2000, "two": 2000}, 2.0)]
    samples = [Sample(at + 1e-6, "east", Counter(held), {}, ()) for held, at in jobs]
    used = report.use(seen, samples, 4)
    assert used.could == pytest.approx(4.4) and used.used == pytest.approx(2.0)
    assert used.late == pytest.approx(2.0), "what the gang that ended still holds of what could be used"
