"""The faults of `make chaos`, and how each violated invariant is found."""

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from hack.lab.base.lab import MANAGER
from hack.trials.chaos import draw, faults, invariants, outcome, settling, snapshot
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.helping import Help
from hack.trials.chaos.invariants import Finding
from hack.trials.chaos.outcome import Failure, Outcome
from hack.trials.chaos.snapshot import Member, Snapshot
from hack.trials.sampler import Lives
from tests.unit.builders import make_condition

GANG, WORK, PLACE, SHARE = "gang-1", "work", "gang-1-abcd1234", "gang-1-abcd1234-1"
CPUS = 4  # quota of each worker cluster

# --- draw -------------------------------------------------------------------------------------------------------------


def fault(number: int = 1, kind: str = "cut", *, where: str = "east", lasts: float = 1.0, joins: bool = False) -> Fault:
    return Fault(number, kind, where, "", lasts, draw.AT_REST, joins, 0)


def test_a_fault_depends_on_its_seed_and_number_alone() -> None:
    first, more = draw.bunches(7, 20, 4.0), draw.bunches(7, 50, 4.0)
    assert [one for bunch in more for one in bunch][:20] == [one for bunch in first for one in bunch]
    assert draw.fault(7, 12, 4.0) == draw.fault(7, 12, 4.0) != draw.fault(8, 12, 4.0)
    assert [one.number for bunch in more for one in bunch] == list(range(1, 51))


def test_faults_of_some_kinds_are_those_of_the_seed() -> None:
    kinds = {"cut", "job-rejected"}
    some = [one for bunch in draw.bunches(7, 6, 4.0, kinds) for one in bunch]
    every = [one for bunch in draw.bunches(7, some[-1].number, 4.0) for one in bunch]
    assert [one.number for one in some] == [one.number for one in every if one.kind in kinds]
    assert {one.kind for one in some} == kinds


def test_the_faults_of_one_deck_are_of_all_kinds_and_short() -> None:
    drawn = [one for bunch in draw.bunches(7, draw.DECK, 4.0) for one in bunch]
    assert {one.kind for one in drawn} == {kind.name for kind in draw.KINDS}
    assert {one.moment for one in drawn} >= set(draw.MOMENTS)
    assert {one.way for one in drawn if one.kind == "cut"} >= {"silent", "unplugged", "refusing"}
    limits = {(one.where, one.way) for one in drawn if one.kind == "limit-range"}
    assert len(limits) == 6, "each way in each cluster"
    assert max(one.lasts for one in drawn) <= 4.0
    assert any(len(bunch) == 2 for bunch in draw.bunches(7, draw.DECK, 4.0)), "some are done while an outage lasts"


def test_every_kind_can_be_done() -> None:
    """Faults that last are outages, all others are deeds."""
    assert {kind.name for kind in draw.KINDS if kind.lasts} == set(faults.OUTAGES)
    assert {kind.name for kind in draw.KINDS if not kind.lasts} == set(faults.DEEDS)


@pytest.mark.parametrize(
    ("before", "joins", "want"),
    [
        pytest.param(fault(1), True, True, id="a deed during a cut"),
        pytest.param(fault(1), False, False, id="a deed that was drawn to be alone"),
        pytest.param(fault(1, "copy-deleted", lasts=0), True, False, id="no outage"),
        pytest.param(
            fault(1, "etcd-killed", where=MANAGER),
            True,
            False,
            id="an outage where the manager takes no orders",
        ),
        pytest.param(
            fault(1, "kubelet-killed", where=MANAGER),
            True,
            True,
            id="an outage where the manager takes orders",
        ),
    ],
)
def test_a_deed_may_join_an_outage(monkeypatch: pytest.MonkeyPatch, before: Fault, joins: bool, want: bool) -> None:
    drawn = {1: before, 2: fault(2, "job-deleted", where="", lasts=0, joins=joins)}
    monkeypatch.setattr(draw, "fault", lambda seed, number, longest: drawn[number])
    assert [len(bunch) for bunch in draw.bunches(7, 2, 4.0)] == ([2] if want else [1, 1])


def test_a_fault_is_repeated_with_its_outage() -> None:
    bunches = [(fault(1),), (fault(2), fault(3)), (fault(4),)]
    assert draw.containing(bunches, 3) == [bunches[1]]
    assert draw.since(bunches, 3) == bunches[1:]


# --- invariants -------------------------------------------------------------------------------------------------------


def ready(kind: str, name: str, **metadata: Any) -> Raw:
    labels = {names.RAY_NODE_TYPE_LABEL: kind, names.RAY_GCS_CLUSTER_LABEL: GANG}
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, **metadata},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "conditions": [make_condition("Ready")]},
    }


def worker(name: str, cluster: str) -> Raw:
    return ready("worker", name, annotations={names.SLOT_ANNOTATION: f"{cluster}/1/role/0"})


def copied(name: str) -> Raw:
    """The remote pod of the worker with this name."""
    made = ready("", name, uid=f"copy-{name}", creationTimestamp="2026-01-02T03:04:05Z")
    made["metadata"]["labels"] = {names.POD_UID_LABEL: f"uid-{name}", names.PLACEMENT_LABEL: PLACE}
    return made


def share(cpu: str = "1") -> Raw:
    origin = {names.WORKLOAD_UID_LABEL: f"uid-{WORK}", names.PLACEMENT_LABEL: PLACE, names.MANAGER_LABEL: "m"}
    assigned = {"flavors": {"cpu": "any"}, "resourceUsage": {"cpu": cpu}}
    return {
        "metadata": {"name": SHARE, "uid": "uid-share", "labels": origin},
        "status": {
            "conditions": [make_condition(names.QUOTA_RESERVED)],
            "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
        },
    }


def member(name: str, shown: str = "1") -> Member:
    """A worker cluster that runs the worker `name`."""
    row = {"name": "cpu", "nominalQuota": str(CPUS)}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [row]}]}]
    reserved = [{"name": "any", "resources": [{"name": "cpu", "total": shown}]}]
    queue = {
        "metadata": {"name": "q"},
        "spec": {"resourceGroups": groups},
        "status": {"flavorsReservation": reserved},
    }
    stands = share()
    return Member(
        pods=[copied(name)], shares=[stands], anchors=[copy.deepcopy(stands)], workloads=[stands], queue=queue
    )


def manager_workload() -> Raw:
    job = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": GANG, "uid": "uid-gang", "controller": True}
    conditions = [make_condition(names.QUOTA_RESERVED), make_condition(names.ADMITTED)]
    metadata = {"name": WORK, "uid": f"uid-{WORK}", "ownerReferences": [job]}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions, "admission": {}}}


def placement(work: Raw) -> Raw:
    shares = [{"cluster": one, "groups": [{"name": "w", "role": "r", "count": 1}]} for one in ("east", "west")]
    reference = {"name": WORK, "uid": f"uid-{WORK}"}
    attempt = parse_workload(work).attempt
    return {
        "metadata": {"name": PLACE},
        "spec": {"workload": reference, "attempt": attempt, "round": 1, "shares": shares},
        "status": {"state": PlacementState.PLACED},
    }


def well() -> Snapshot:
    """A gang of two workers, one in each of two clusters."""
    work = manager_workload()
    return Snapshot(
        wanted={GANG: 2},
        jobs=[{"metadata": {"name": GANG}}],
        pods=[ready(names.HEAD, "head"), worker("a", "east"), worker("b", "west")],
        workloads=[work],
        placements=[placement(work)],
        members={"east": member("a"), "west": member("b")},
    )


def test_a_healthy_gang_violates_nothing() -> None:
    assert invariants.findings(well()) == []
    assert invariants.never(well()) == []


def leave(raw: Raw) -> None:
    raw["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"


BROKEN: list[Any] = [
    pytest.param(
        lambda s: s.pods.pop(), invariants.LOST, "gang gang-1 has 1 workers, 1 of them ready, and shall have 2",
        id="a missing worker",
    ),
    pytest.param(
        lambda s: s.pods.pop(0), invariants.LOST, "gang gang-1 has 0 heads, and needs one that is ready",
        id="a missing head",
    ),
    pytest.param(
        lambda s: s.jobs.clear(), invariants.LOST, "gang gang-1 is wanted and has no RayCluster", id="a missing job",
    ),
    pytest.param(
        lambda s: leave(s.jobs[0]), invariants.LOST, "gang gang-1 is wanted and has no RayCluster",
        id="a job that is being deleted",
    ),
    pytest.param(
        lambda s: s.pods[1]["status"].update(phase="Failed"), invariants.LOST,
        "gang gang-1 has 2 workers, 1 of them ready, and shall have 2", id="a failed worker",
    ),
    pytest.param(
        lambda s: s.members["east"].pods.clear(), invariants.LOST, "worker a holds slot east/1/role/0 and has no copy",
        id="a missing remote pod",
    ),
    pytest.param(
        lambda s: s.pods[1]["metadata"]["annotations"].clear(), invariants.LOST, "worker a has no slot", id="no slot",
    ),
    pytest.param(
        lambda s: s.members["east"].pods[0]["status"].update(conditions=[]), invariants.LOST,
        "the copy of worker a in east is not ready", id="a remote pod that is not ready",
    ),
    pytest.param(
        lambda s: s.members["west"].pods.append(s.members["east"].pods.pop()), invariants.LOST,
        "worker a holds slot east/1/role/0 and has its copy in west", id="a remote pod in another cluster",
    ),
    pytest.param(
        lambda s: s.members["west"].pods.append(copied("a")), invariants.DOUBLED,
        "worker a has copies in east and west", id="two remote pods of one worker",
    ),
    pytest.param(
        lambda s: s.members["west"].pods.append(copied("c")), invariants.ORPHAN,
        "pod c in west has no worker in the manager", id="an orphaned remote pod",
    ),
    pytest.param(
        lambda s: s.members["west"].shares[0]["metadata"]["labels"].update({names.WORKLOAD_UID_LABEL: "uid-other"}),
        invariants.ORPHAN, f"share {SHARE} in west has no Workload in the manager", id="an orphaned share",
    ),
    pytest.param(
        lambda s: s.members["west"].anchors[0]["metadata"].update(name="gang-1-abcd1234-0"), invariants.ORPHAN,
        "anchor gang-1-abcd1234-0 in west is in no Placement", id="an anchor of another round",
    ),
    pytest.param(
        lambda s: leave(s.members["west"].anchors[0]), invariants.ORPHAN, f"{SHARE} in west is still leaving",
        id="an anchor that is being deleted",
    ),
    pytest.param(
        lambda s: s.members["west"].queue["status"]["flavorsReservation"].clear(), invariants.LEDGER,
        "1 cpu are promised in west, and its ClusterQueue shows 0", id="quota that the ClusterQueue does not show",
    ),
    pytest.param(
        lambda s: s.members["west"].workloads.append(share("2")), invariants.LEDGER,
        "1 cpu are promised in west, and its Workloads hold 3", id="quota of a foreign Workload",
    ),
    pytest.param(
        lambda s: s.members["west"].workloads.clear(), invariants.LEDGER,
        "1 cpu are promised in west, and its Workloads hold 0", id="promised quota that no Workload holds",
    ),
    pytest.param(
        lambda s: s.placements.clear(), invariants.RECORD, "Workload work has 0 Placements instead of one",
        id="a missing Placement",
    ),
    pytest.param(
        lambda s: s.placements.append(copy.deepcopy(s.placements[0])), invariants.RECORD,
        "Workload work has 2 Placements instead of one", id="two Placements",
    ),
    pytest.param(
        lambda s: s.placements[0]["status"].update(state="Waiting", reason="no room"), invariants.RECORD,
        f"Placement {PLACE} says Waiting: no room", id="a waiting Placement",
    ),
    pytest.param(
        lambda s: s.placements[0]["spec"].update(attempt="00000000"), invariants.RECORD,
        f"Placement {PLACE} is of another attempt than its Workload's", id="a Placement of another attempt",
    ),
    pytest.param(
        lambda s: s.placements[0]["spec"]["shares"].pop(), invariants.RECORD,
        f"Placement {PLACE} is for 1 workers, and the gang has 2", id="a Placement too small",
    ),
    pytest.param(
        lambda s: s.workloads.clear(), invariants.RECORD, "gang gang-1 has 0 Workloads instead of one",
        id="a missing Workload",
    ),
    pytest.param(
        lambda s: s.workloads[0]["status"]["conditions"].pop(), invariants.RECORD, "Workload work is not admitted",
        id="a Workload that is not admitted",
    ),
    pytest.param(
        lambda s: s.workloads[0]["metadata"].update(uid="uid-other"), invariants.ORPHAN,
        f"Placement {PLACE} has no Workload", id="a leftover Placement",
    ),
    pytest.param(
        lambda s: s.jobs.append({"metadata": {"name": "gang-0"}}), invariants.ORPHAN,
        "RayCluster gang-0 is still there", id="a leftover job",
    ),
    pytest.param(
        lambda s: s.wanted.clear(), invariants.ORPHAN, "Workload work in the manager is of no gang",
        id="a leftover Workload",
    ),
    pytest.param(
        lambda s: s.wanted.clear(), invariants.ORPHAN, "pod a in the manager is of no gang", id="a leftover pod",
    ),
    pytest.param(
        lambda s: leave(s.pods[0]), invariants.ORPHAN, "head in the manager is still leaving",
        id="a head that is being deleted",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "kind", "want"), BROKEN)
def test_each_violation_is_found(spoil: Callable[[Snapshot], object], kind: str, want: str) -> None:
    sight = well()
    spoil(sight)
    assert Finding(kind, want) in invariants.findings(sight)


def rejected(sight: Snapshot) -> Raw:
    """Let KubeRay reject one more job, which waits in the queue; returns its Workload."""
    work = manager_workload()
    job = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rejected-1", "uid": "uid-job", "controller": True}
    work["metadata"] = {"name": "rejected", "uid": "uid-rejected", "ownerReferences": [job]}
    work["spec"], work["status"] = {"active": False}, {"conditions": [make_condition(names.EVICTED)]}
    sight.workloads.append(work)
    sight.jobs.append({"metadata": {"name": "rejected-1"}})
    return work


def test_a_job_that_kuberay_rejects_is_beside_the_gangs_and_holds_nothing() -> None:
    sight = replace(well(), rejected={"rejected-1"})
    work = rejected(sight)
    assert invariants.findings(sight) == []
    work["spec"], work["status"] = {}, manager_workload()["status"]
    held = Finding(invariants.LEDGER, "job rejected-1, which KubeRay rejects, holds quota in the manager")
    assert invariants.findings(sight) == [held]
    made = placement(work)
    made["metadata"]["name"], made["spec"]["workload"] = "promise", {"name": "rejected", "uid": "uid-rejected"}
    sight.placements.append(made)
    said = {one.text for one in invariants.findings(sight)}
    assert "Placement promise is of job rejected-1, which KubeRay rejects" in said


def test_a_rejected_job_that_should_be_gone_is_left_over() -> None:
    sight = well()
    rejected(sight)
    assert {one.text for one in invariants.findings(sight)} >= {
        "RayCluster rejected-1 is still there",
        "Workload rejected in the manager is of no gang",
    }


def test_the_placement_of_a_finished_gang_is_a_record() -> None:
    """Its Workload has finished, and no quota is promised any more."""
    sight = well()
    sight.workloads[0]["status"]["conditions"].append(make_condition(names.FINISHED))
    sight.placements[0]["status"]["state"] = PlacementState.ENDED
    said = {one.text for one in invariants.findings(sight)}
    assert "0 cpu are promised in west, and its ClusterQueue shows 1" in said
    assert not any("Placements instead of one" in text for text in said)


@pytest.mark.parametrize(
    ("spoil", "want"),
    [
        pytest.param(
            lambda s: s.members["east"].workloads.append(share("4")),
            "in east ClusterQueue q uses 5 cpu, and may use 4",
            id="reserved quota beyond the nominal quota",
        ),
        pytest.param(
            lambda s: s.members["east"].pods.extend(copied(name) for name in "cdef"),
            "in east pods uses 5 cpu, and may use 4",
            id="running pods beyond the quota",
        ),
    ],
)
def test_beyond_quota_is_never_allowed(spoil: Callable[[Snapshot], object], want: str) -> None:
    sight = well()
    spoil(sight)
    assert invariants.never(sight) == [Finding(invariants.LEDGER, want)]


@pytest.mark.parametrize(
    ("change", "unmade"),
    [
        pytest.param(lambda s: None, [], id="KubeRay has created all workers"),
        pytest.param(lambda s: s.pods.pop(), [GANG], id="one worker is missing"),
        pytest.param(
            lambda s: (s.pods.pop(), s.jobs[0].update(spec={"suspend": True})),
            [],
            id="one worker of a suspended job is missing",
        ),
        pytest.param(lambda s: (s.pods.pop(), s.jobs.clear()), [], id="one worker of a deleted job is missing"),
    ],
)
def test_jobs_with_missing_workers(change: Callable[[Snapshot], object], unmade: list[str]) -> None:
    sight = well()
    change(sight)
    assert settling.unmade(sight) == unmade


FAULT = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("scaled", "evicted", "want"),
    [
        pytest.param({GANG}, "", [GANG], id="the trial scaled the gang"),
        pytest.param({"gang-2"}, "", [], id="the trial scaled another gang"),
        pytest.param(set(), "2026-01-02T03:04:05Z", [GANG], id="Kueue suspended the gang at the fault"),
        pytest.param(set(), "2026-01-02T03:04:04Z", [], id="Kueue suspended the gang before the fault"),
        pytest.param(set(), "", [], id="neither scaled nor suspended"),
    ],
)
def test_kuberay_is_reminded_only_of_scaled_or_suspended_gangs(scaled: set[str], evicted: str, want: list[str]) -> None:
    sight = well()
    sight.pods.pop()
    if evicted:
        again = make_condition(names.EVICTED, False) | {"lastTransitionTime": evicted}
        sight.workloads[0]["status"]["conditions"].append(again)
    assert settling.forgotten(sight, scaled, FAULT) == want
    sight.pods.append(worker("b", "west"))
    assert settling.forgotten(sight, scaled, FAULT) == [], "it has all of them"


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        pytest.param([], 60.0, id="no fault"),
        pytest.param(["cut", "job-rejected"], 60.0, id="faults with a reaction within a minute"),
        pytest.param(["limit-range", "job-deleted"], 120.0, id="a denied dry run counts for a minute"),
        pytest.param(["clock-jumped"], 100.0, id="timestamps lie in the future"),
    ],
)
def test_how_long_the_controller_has_after_faults(kinds: list[str], want: float) -> None:
    assert settling.patience(fault(kind=kind) for kind in kinds) == want


@pytest.mark.parametrize(
    ("struck", "want"),
    [
        pytest.param(Fault(1, "cut", "east", "unplugged", 1.0, "", False, 0), True, id="a cut with the link unplugged"),
        pytest.param(
            Fault(1, "cut", "east", "silent", 1.0, "", False, 0),
            False,
            id="a silent cut, which lets this machine through",
        ),
        pytest.param(fault(1, "etcd-killed"), True, id="etcd killed"),
        pytest.param(fault(1, "apiserver-killed"), True, id="an API server killed"),
        pytest.param(fault(1, "kubelet-killed"), False, id="a kubelet killed"),
        pytest.param(fault(1, "preempted"), False, id="a preemption"),
        pytest.param(fault(1, "etcd-restored"), False, id="a restore of etcd"),
    ],
)
def test_outages_that_excuse_missing_observations(struck: Fault, want: bool) -> None:
    assert faults.silences(struck) is want


# --- lives ------------------------------------------------------------------------------------------------------------

BORN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()


def seen(lives: Lives, cluster: str, at: float, *, born: float = 0, phase: str = "Running") -> None:
    """A remote pod of worker `a` that is observed `at` seconds after BORN."""
    pod = copied("a")
    stamp = datetime.fromtimestamp(BORN + born, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod["metadata"].update(uid=f"copy-{cluster}-{born}", creationTimestamp=stamp)
    pod["status"]["phase"] = phase
    lives.saw(cluster, [pod], BORN + at)


@pytest.mark.parametrize(
    ("east", "west", "want"),
    [
        pytest.param((10.0, 0.0), (12.0, 5.0), True, id="two remote pods at one time"),
        pytest.param((4.0, 0.0), (12.0, 5.0), False, id="two remote pods in succession"),
        pytest.param(
            (5.9, 0.0),
            (12.0, 5.0),
            False,
            id="the second may have been created after the first was observed",
        ),
        pytest.param((30.0, 0.0), (7.0, 5.0), True, id="observed after an outage, and alive during it"),
    ],
)
def test_two_lives_at_the_same_time(east: tuple[float, float], west: tuple[float, float], want: bool) -> None:
    lives = Lives()
    seen(lives, "east", east[0], born=east[1])
    seen(lives, "west", west[0], born=west[1])
    assert bool(lives.doubled()) is want


def test_a_failed_remote_pod_does_not_run() -> None:
    lives = Lives()
    seen(lives, "east", 10, phase="Failed")
    seen(lives, "west", 12, born=2)
    assert lives.doubled() == []


def test_a_remote_pod_is_observed_many_times() -> None:
    lives = Lives()
    for at in (1.0, 4.0, 9.0):
        seen(lives, "east", at)
    assert lives.doubled() == []
    seen(lives, "west", 8.0, born=5)
    assert lives.doubled() == [
        "worker uid-a lived twice: a in east (at least 8.0 s) and a in west (at least 2.0 s)",
    ]


# --- moments, words ---------------------------------------------------------------------------------------------------


def test_the_moment_of_a_gang() -> None:
    sight = well()
    assert snapshot.reached("dispatched", GANG, sight)
    for one in sight.members.values():
        one.pods.clear()
    assert snapshot.reached("placed", GANG, sight) and not snapshot.reached("dispatched", GANG, sight)
    sight.placements[0]["status"]["state"] = PlacementState.RESERVING
    assert snapshot.reached("reserved", GANG, sight) and not snapshot.reached("placed", GANG, sight)
    for one in sight.members.values():
        one.shares.clear()
    assert snapshot.reached("planned", GANG, sight) and not snapshot.reached("reserved", GANG, sight)
    sight.placements.clear()
    assert snapshot.reached("submitted", GANG, sight) and not snapshot.reached("planned", GANG, sight)
    assert not snapshot.reached("submitted", "gang-2", sight)


def test_a_failure_says_how_to_repeat_it() -> None:
    struck = draw.fault(7, 12, 4.0)
    found = Failure([struck], "it is not well", [Finding(invariants.LOST, "worker a has no slot")], "EVIDENCE")
    told = outcome.told(found, 7, 4.0)
    assert f"After fault 12 of seed 7, {struck}" in told
    assert "lost: worker a has no slot" in told and "EVIDENCE" in told
    assert "python -m hack.trials.chaos --seed 7 --longest 4 --only 12" in told
    some = outcome.told(found, 7, 4.0, ["cut", "scaled"])
    assert "python -m hack.trials.chaos --seed 7 --longest 4 --kinds cut scaled --only 12" in some


def test_the_last_line() -> None:
    struck = [fault(1), fault(2), fault(3, "scaled", lasts=0)]
    found = Outcome(struck, [1.0, 2.0, 9.0], help=Help(1, 0, 0, 0, 1), ends=3, killed=3, looks=400, gap=1.25)
    want = (
        "faults 3 (kinds 2), lost 0, doubled 0, orphans 0, failures 0, recovery P50 2.0 s, max 9.0 s, help: 1 "
        "reminders of KubeRay (of 2), 0 pods deleted that waited for a start (of 1), 0 processes started again (of 1), "
        "0 moments not reached (of 1), 1 deeds that hit nobody (of 1), 0 gangs with workers too many (of 1), "
        "controllers ended 3 (killed 3), looks 400 (longest gap 1.2 s)"
    )
    assert outcome.last_line(found) == want
    assert outcome.closing(found, 7, "COMMAND") == f"{want}, seed 7; again: COMMAND"


def test_each_failure_is_one_sentence_before_the_last_line() -> None:
    wrong = [Finding(invariants.LOST, "x"), Finding(invariants.ORPHAN, "y"), Finding(invariants.ORPHAN, "z")]
    unseen = Failure([], "unseen", [Finding(invariants.BLIND, "w")])
    found = Outcome(failures=[Failure([], "it is not well", wrong), unseen])
    found.help.nobody = 2
    *failed, last = outcome.closing(found, 7, "COMMAND").splitlines()
    assert failed == [
        "FAILED: lost: x", "FAILED: orphan: y", "FAILED: orphan: z", "FAILED: blind: w",
        "FAILED: 2 deeds that hit nobody are more than these faults explain: 1",
    ]  # fmt: skip
    assert "lost 1, doubled 0, orphans 2, failures 5" in last
    assert Outcome().sentences() == ["no fault struck, so nothing was seen"]


def test_recoveries_by_resyncs_alone_are_a_failure() -> None:
    """A lost wake-up slows most recoveries; it is no failure where no wake-up can come."""
    assert Outcome([fault(1)], [2.0, 14.0, 60.0]).sentences() == []
    assert Outcome([fault(1)], [2.0, 17.0, 60.0]).sentences() == [
        "half of the recoveries took 17 s and more, and 15 s is late"
    ]


def test_the_observed_state_is_listed_by_object() -> None:
    told = snapshot.text(well())
    assert f"Placement {PLACE} round 1 (1 east, 1 west) Placed" in told
    assert "pod a of uid-a Running ready" in told
