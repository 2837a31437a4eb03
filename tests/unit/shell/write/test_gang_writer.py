"""Every write for a gang has a precondition: an admitted share, a Placement's version, the pods of a share."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import (
    Action,
    Deactivate,
    DeleteShare,
    DeleteSharePods,
    Plan,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
    WithheldWorkers,
)
from adapter.objects.past_exclusions import PastExclusions, parse_past_exclusions
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import key_of
from adapter.objects.workload import parse_workload
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.write import gang_writer
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import make_copy, make_placement, make_pod, make_reservation, make_target, make_workload
from tests.unit.stores import Sight, fill, make_template

WORK = make_workload()
PLACE = make_placement(WORK)
SHARE = make_reservation(PLACE)
RECREATED = {**SHARE, "metadata": SHARE["metadata"] | {"uid": "another"}}


async def do(server: Server, action: Action) -> Sight:
    """Do an action, with one server for both clusters; what a copy would be in east is known."""
    sight = Sight({"east": 9})
    trials, work = sight.facts.dry_run_answers, parse_workload(WORK)
    trials.add_answer(
        "east", work, work.podsets[1], DryRunResult(unknown_reason="down"), trials.circumstances("east", work.namespace)
    )
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = sight.members["east"].client = client
        await sight.executor(client).execute(action)
    return sight


async def set_check(server: Server) -> None:
    """Write Ready on the ground of an admitted share in east."""
    relied_on = (parse_reservation("east", SHARE),)
    await do(
        server,
        SetCheck(parse_workload(WORK), builders.CHECK, names.CHECK_READY, "all", reservations_to_verify=relied_on),
    )


@pytest.mark.parametrize("requeued", [None, 60])
async def test_a_deactivation_records_when_the_workload_had_queued_again(requeued: float | None) -> None:
    """Kueue's condition names the deactivation afterwards."""
    requeued_at = None if requeued is None else builders.at(requeued)
    server = Server(lists=[says(WORK)])
    await do(server, Deactivate(replace(parse_workload(WORK), requeued_at=requeued_at)))
    (write,) = server.asked
    annotations = write.body["metadata"]["annotations"]
    assert annotations.get(names.REQUEUED_AT_ANNOTATION) == (requeued and builders.stamp(requeued))


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(make_reservation(PLACE, admitted=False), id="not admitted any more"),
        pytest.param(make_reservation(PLACE, deleting=True), id="being deleted"),
        pytest.param(make_reservation(PLACE, conditions=[names.EVICTED]), id="evicted"),
        pytest.param(RECREATED, id="another Workload of that name"),
    ],
)
async def test_a_gang_starts_only_on_shares_that_are_still_admitted_when_read_again(
    now: Mapping[str, Any],
) -> None:
    server = Server(lists=[says(now), says(WORK)])
    with pytest.raises(Unreachable, match="the share in east is not admitted any more"):
        await set_check(server)
    assert [asked.method for asked in server.asked] == ["GET"], "nothing was written"


async def test_the_check_is_written_by_the_workloads_version() -> None:
    """An answer that comes late must not start the next attempt."""
    server = Server(lists=[says(SHARE), says(WORK)])
    await set_check(server)
    read, write = server.asked
    assert (read.method, write.method) == ("GET", "PATCH") and write.path.endswith("/workloads/rayjob-train/status")
    meant = {key: write.body["metadata"].get(key) for key in ("uid", "resourceVersion")}
    assert meant == {"uid": parse_workload(WORK).uid, "resourceVersion": parse_workload(WORK).resource_version}
    (entry,) = write.body["status"]["admissionChecks"]
    assert (entry["name"], entry["state"]) == (builders.CHECK, names.CHECK_READY)


async def test_exclusions_are_recorded_before_the_check_by_the_workloads_version() -> None:
    """A process that dies between the two writes must not lose them."""
    recorded = {**WORK, "metadata": WORK["metadata"] | {"resourceVersion": "8"}}
    server, past = Server(lists=[says(recorded), says(WORK)]), PastExclusions({"west": builders.at(60)}, 1)
    work = parse_workload(WORK)
    await do(server, SetCheck(work, builders.CHECK, names.CHECK_RETRY, "again", past_exclusions=past))
    record, check = server.asked
    assert record.path.endswith("/workloads/rayjob-train") and check.path.endswith("/workloads/rayjob-train/status")
    metadata = record.body["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == (work.uid, work.resource_version)
    assert parse_past_exclusions(metadata["annotations"][names.PAST_EXCLUSIONS_ANNOTATION]) == past
    assert check.body["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_a_record_that_is_denied_holds_up_no_check(status: int) -> None:
    """A webhook may deny annotations for ever; the job would keep its quota, and nothing would run."""
    server, past = Server(lists=[refuses(status), says(WORK)]), PastExclusions({"west": builders.at(60)}, 1)
    work = parse_workload(WORK)
    sight = await do(server, SetCheck(work, builders.CHECK, names.CHECK_RETRY, "again", past_exclusions=past))
    _, check = server.asked
    assert check.body["metadata"]["resourceVersion"] == work.resource_version
    assert sight.memory.is_record_denied(work.uid) and not sight.memory.is_record_denied("uid-of-another")
    fill(sight.manager.workloads, WORK)
    gangs = sight.facts.gang_observer
    assert gangs.facts(key_of(WORK), builders.START).job.record_denied
    sight.memory._monotonic = lambda: time.monotonic() + 601
    assert not gangs.facts(key_of(WORK), builders.START).job.record_denied, "it is tried again"


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (503, "ServiceUnavailable")])
async def test_a_record_that_failed_for_a_moment_is_tried_again_before_the_check(status: int, reason: str) -> None:
    server, past = Server(lists=[refuses(status, reason)]), PastExclusions({"west": builders.at(60)}, 1)
    with pytest.raises((ApiError, Unreachable)):
        await do(server, SetCheck(parse_workload(WORK), builders.CHECK, names.CHECK_RETRY, "", past_exclusions=past))
    assert not [request for request in server.asked if request.path.endswith("/status")]


STANDS = {**PLACE, "metadata": PLACE["metadata"] | {"resourceVersion": "7"}}


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(Plan(parse_workload(WORK), parse_placement(STANDS), ()), id="a further round"),
        pytest.param(UpdatePlacementStatus(parse_placement(STANDS), {"state": PlacementState.PLACED}), id="a status"),
        pytest.param(RetargetPlacement(parse_placement(STANDS), parse_workload(WORK), 4), id="another slice"),
        pytest.param(
            RetargetPlacement(parse_placement(STANDS), parse_workload(WORK), 4, drops_shares=True), id="no slice"
        ),
    ],
)
async def test_a_placement_is_written_by_its_version(action: Action) -> None:
    """Otherwise a late plan of an earlier leader would change the counts of shares of another plan."""
    server = Server(lists=[says(STANDS)])
    await do(server, action)
    (write,) = server.asked
    assert write.method == "PATCH" and write.body["metadata"] == {
        "uid": parse_placement(STANDS).uid,
        "resourceVersion": "7",
    }


COPIES = tuple(make_copy(make_pod(f"worker-{number}")) for number in range(3))
SIDECAR = {"name": "mesh", "resources": {"requests": {"cpu": "500m"}}}
HELD = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [SIDECAR]}}


async def test_a_share_reserves_the_pod_after_the_clusters_admission() -> None:
    """And what the template says, where that is not known."""
    share, groups = (
        parse_placement(PLACE).shares[0],
        (("workers", 2, make_template("1")), ("gpu", 1, make_template("1"))),
    )
    target = make_target("east", share="train-1-1")
    server = Server(lists=[says({"metadata": {"uid": "anchor"}}), says(SHARE)])
    await do(server, Reserve(parse_placement(PLACE), share, target, groups, None, True, {"workers": HELD}))
    podsets = {
        one["template"]["metadata"]["labels"]["rayspan.dev/ray-group"]: one
        for one in server.asked[1].body["spec"]["podSets"]
    }
    assert podsets["workers"]["template"]["spec"] == HELD["spec"]
    assert podsets["workers"]["template"]["metadata"]["labels"]["team"] == "a"
    assert podsets["gpu"]["template"]["spec"]["containers"][0]["name"] == "ray"


VACATE = DeleteSharePods(parse_reservation("east", SHARE), COPIES)


async def test_the_pods_of_a_share_are_deleted_and_the_share_stays() -> None:
    server = Server(lists=[says({"kind": "Status"})] * 3)
    await do(server, VACATE)
    asked = {(one.method, one.path.rsplit("/", 2)[-2:][0], one.body["preconditions"]["uid"]) for one in server.asked}
    assert asked == {("DELETE", "pods", copy["metadata"]["uid"]) for copy in COPIES}


async def test_an_error_for_one_pod_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, and nothing waits for the share."""
    monkeypatch.setattr(gang_writer, "DELETIONS_AT_ONCE", 1)
    sight, server = Sight({"east": 9}), Server(lists=[refuses(403), *[says({"kind": "Status"})] * 2])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.members["east"].client = client
        with pytest.raises(ApiError):
            await sight.executor(client).execute(VACATE)
        assert len(server.asked) == 3
    assert sight.memory.undeleted_shares == {parse_reservation("east", SHARE).uid: "no"}


async def test_a_left_over_share_is_deleted_after_its_anchor() -> None:
    server = Server(lists=[says({"kind": "Status"})] * 2)
    await do(server, DeleteShare(parse_reservation("east", SHARE)))
    assert [one.path.rsplit("/", 2)[-2] for one in server.asked] == ["configmaps", "workloads"]


async def test_a_plan_records_the_slots_in_which_workers_did_not_start() -> None:
    """No object shows them, and gangs behind leave capacity to the workers that look for other slots."""
    current = parse_placement(STANDS)
    action = Plan(parse_workload(WORK), current, (), current.shares, unusable_slots={"workers": 1})
    sight = await do(Server(lists=[says(STANDS)]), action)
    assert sight.memory.unusable_slots == {current.uid: {"workers": 1}}


async def test_a_plan_records_the_workers_that_it_withholds() -> None:
    """No object shows them. They are planned again when their time is over."""
    current, refused = parse_placement(STANDS), WithheldWorkers(frozenset({"uid-of-pod"}))
    action = Plan(parse_workload(WORK), current, (), (), withheld_workers={"workers": 1}, newly_withheld=refused)
    memory = (await do(Server(lists=[says(STANDS)]), replace(action, withheld_for=timedelta(minutes=1)))).memory
    assert memory.planned_without == {current.uid: {"workers": 1}}
    (noted,), until = memory.withheld_workers(current.uid, builders.START)
    assert noted == refused and until and until > builders.START
    assert memory.withheld_for(current.uid, "uid-of-pod") and not memory.withheld_for(current.uid, "uid-of-other")
    memory._monotonic = lambda: time.monotonic() + 61
    assert memory.withheld_workers(current.uid, builders.START) == ((), None)


async def test_a_placement_of_another_slice_is_replanned() -> None:
    """The capacity is unchanged, but the requested workers are not."""
    server, sight = Server(lists=[says(STANDS)]), Sight({"east": 9})
    sight.memory.planned_versions[parse_placement(STANDS).uid] = sight.fleet.capacity_versions.version
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        await sight.executor(client).execute(RetargetPlacement(parse_placement(STANDS), parse_workload(WORK), 7))
    (write,) = server.asked
    assert (write.body["spec"]["wanted"], write.body["spec"]["attempt"]) == (7, parse_workload(WORK).attempt)
    assert "shares" not in write.body["spec"] and not sight.memory.planned_versions
