"""A job's priority that changes: shares that wait for quota are created again, and others keep the earlier one."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, DeleteShare, EmitEvent, Reserve
from adapter.gang.cleanup import unwanted_shares
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import at, make_placement, make_reservation, make_workload
from tests.unit.fact_builders import with_facts
from tests.unit.gang.test_lifecycle import gang

PLACEMENT = make_placement(make_workload(), shares={"east": {"workers": 4}}, placedRound=1)


def workload(priority: int | None, **fields: Any) -> Raw:
    raw = make_workload(**fields)
    return {**raw, "spec": {**raw["spec"], **({} if priority is None else {"priority": priority})}}


def reserving(priority: int | None, share: Raw, max_priority: int | None = None) -> Gang:
    facts = gang(workload(priority), [PLACEMENT], {"east": share})
    target = replace(facts.clusters.targets["east"], max_priority=max_priority)
    return with_facts(facts, targets={"east": target})


def requested(priority: int | None, **fields: Any) -> Raw:
    return make_reservation(PLACEMENT, priority=priority, **{"admitted": False, "message": "waits", **fields})


@pytest.mark.parametrize(
    ("facts", "renewed"),
    [
        pytest.param(reserving(1000, requested(0)), True, id="the job was raised"),
        pytest.param(reserving(0, requested(1000)), True, id="the job was lowered"),
        pytest.param(reserving(-5, requested(0)), True, id="the job was put behind all others"),
        pytest.param(reserving(1000, requested(1000)), False, id="the job has the same priority"),
        pytest.param(reserving(None, requested(0)), False, id="a missing priority counts as zero"),
        pytest.param(reserving(5000, requested(100), max_priority=100), False, id="both exceed the cluster's maximum"),
        pytest.param(reserving(5000, requested(1000), max_priority=100), True, id="the cluster's maximum was lowered"),
        pytest.param(reserving(1000, requested(None)), False, id="an earlier release created the share"),
        pytest.param(reserving(1000, requested(0, admitted=True)), False, id="the share holds quota"),
        pytest.param(reserving(1000, requested(0, conditions=[names.EVICTED])), False,
            id="the share was evicted: workers may be on it"),
    ],
)  # fmt: skip
def test_a_share_that_waits_for_quota_is_created_again_with_the_new_priority(facts: Gang, renewed: bool) -> None:
    assert bool(unwanted_shares(facts)) is renewed


def test_the_share_is_deleted_first_and_then_requested_with_the_new_priority() -> None:
    share = requested(0)
    actions = decide(reserving(1000, share), at(5))
    assert actions[0] == DeleteShare(parse_reservation("east", share))
    assert not any(isinstance(action, Reserve) for action in actions)
    (request,) = [action for action in decide(gang(workload(1000), [PLACEMENT]), at(5)) if isinstance(action, Reserve)]
    assert request.priority == 1000


def test_a_running_gang_creates_the_share_again_only_when_it_is_gone() -> None:
    """Until then a share of that name exists, and no dry run precedes a creation."""
    raw = make_workload(check=names.CHECK_READY)
    further = make_placement(raw, shares={"west": {"workers": 4}}, round=2, placedRound=1)
    share = make_reservation(further, admitted=False, message="waits", priority=0)
    running = workload(1000, check=names.CHECK_READY)
    first = decide(gang(running, [further], {"west": share}), at(5))
    assert first[0] == DeleteShare(parse_reservation("west", share))
    assert not any(isinstance(action, Reserve) for action in first)
    assert any(isinstance(action, Reserve) for action in decide(gang(running, [further]), at(5)))


def warnings(actions: list[Action]) -> list[str]:
    events = (action for action in actions if isinstance(action, EmitEvent))
    return [event.message for event in events if event.reason == names.EventReason.PRIORITY_OUTDATED]


@pytest.mark.parametrize(
    ("priority", "warned"),
    [
        pytest.param(1000, True, id="the job was raised while it runs"),
        pytest.param(0, False, id="the job has the priority that it started with"),
    ],
)
def test_shares_that_hold_quota_keep_their_priority_and_an_event_says_so(priority: int, warned: bool) -> None:
    share = make_reservation(PLACEMENT, priority=0)
    running = gang(workload(priority, check=names.CHECK_READY), [PLACEMENT], {"east": share})
    assert unwanted_shares(running) == ()
    texts = warnings(decide(running, at(5)))
    assert [text.startswith("The job's priority is 1000 now") and "0 in east" in text for text in texts] == (
        [True] if warned else []
    )
