"""Decisions depend on reason codes, not on texts: with every text reworded, the actions are the same."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

import adapter.diagnosis
import adapter.gang
import adapter.planning
import adapter.worker
from adapter import names
from adapter.actions import Action, EmitEvent, PatchPodStatus, Plan, SetCheck, UpdatePlacementStatus
from adapter.diagnosis import explain, pod_state
from adapter.gang import lifecycle, messages
from adapter.names import ReasonCode
from adapter.objects.placement import Verdict, parse_placement
from adapter.objects.reason import Reason
from adapter.planning import explanation
from adapter.shell.clusters import worker_cache
from adapter.worker import cluster_loss, dispatch, manager_pod_status
from tests.unit import stores
from tests.unit.builders import CHECK, at, make_condition, make_copy, make_placement, make_pod, make_workload
from tests.unit.diagnosis.jobs import make_facts, make_job
from tests.unit.gang import test_lifecycle
from tests.unit.planning import test_planner
from tests.unit.worker import test_dispatch

_ROOMS = (adapter.diagnosis, adapter.gang, adapter.planning, adapter.worker)


def reworded(text: str) -> str:
    """A text that shares no word with the other one and ends differently."""
    return f"{text[::-1].swapcase()} !" if " " in text else text


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reword the text of each `Reason`, and each message constant of a module."""
    made = Reason.__init__

    def make(self: Reason, code: ReasonCode, text: str) -> None:
        made(self, code, reworded(text))

    monkeypatch.setattr(Reason, "__init__", make)
    for module in _modules():
        for name, value in list(vars(module).items()):
            if name.isupper() and isinstance(value, str) and " " in value:
                monkeypatch.setattr(module, name, reworded(value))
            if isinstance(value, Reason):
                monkeypatch.setattr(module, name, Reason(value.code, value.text))
    monkeypatch.setattr(worker_cache, "FIRST_LISTS", reworded(worker_cache.FIRST_LISTS))


def _modules() -> Iterator[Any]:
    for room in _ROOMS:
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            yield importlib.import_module(found.name)


GANGS = {case.id: case for case in test_lifecycle.CASES}
WORKERS = {case.id: case for case in test_dispatch.CASES}


@pytest.mark.parametrize("name", GANGS)
def test_decisions_about_a_gang(name: str, other_words: None) -> None:
    case = GANGS[name]
    facts = _in_other_words(case.facts)
    assert shapes(lifecycle.decide(facts, at(case.seconds))) == shapes(case.want)


@pytest.mark.parametrize("name", WORKERS)
def test_decisions_about_a_worker(name: str, other_words: None) -> None:
    case = WORKERS[name]
    assert shapes(dispatch.decide(_in_other_words(case.given), at(case.seconds))) == shapes(case.want)


def _in_other_words(facts: Any) -> Any:
    """The facts with each text reworded, also in mappings, but not the texts of observed objects."""
    texts = {record_field.name: _value(getattr(facts, record_field.name)) for record_field in fields(facts)}
    return replace(facts, **texts)


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return reworded(value)
    if isinstance(value, Mapping):
        return {key: reworded(found) if isinstance(found, str) else found for key, found in value.items()}
    is_facts = is_dataclass(value) and type(value).__module__ in (
        "adapter.gang.gang_facts",
        "adapter.worker.worker_facts",
    )
    return _in_other_words(value) if is_facts else value


def shapes(actions: Sequence[Action]) -> list[object]:
    """What the actions do, without their texts. An action that changes a text only is left out."""
    return [shape for action in actions if (shape := _shape(action))]


def _shape(action: Action) -> object:
    kind = type(action).__name__
    match action:
        case EmitEvent():
            return kind, action.reason, action.warning
        case SetCheck():
            check = action.workload.checks.get(action.check)
            said = check is not None and check.state == action.state == names.CHECK_PENDING
            return None if said else (kind, action.state, action.podset_updates)
        case UpdatePlacementStatus():
            before = action.placement.status
            return _changed(kind, _status(before), _status({**before, **action.status}))
        case PatchPodStatus():
            status = action.pod.get("status") or {}
            return _changed(kind, _pod(status), _pod({**status, **action.body["status"]}))
        case Plan():
            excluded = [(exclusion.cluster, exclusion.until) for exclusion in action.exclusions]
            return kind, excluded, action.kept_shares, action.failures, action.unusable_slots, action.start_timed_out
        case _:
            return kind, getattr(action, "cluster", ""), getattr(action, "orphan", None), getattr(action, "delay", None)


def _changed(kind: str, before: object, after: object) -> object:
    return None if before == after else (kind, after)


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("reason", "conditions", "blocked")
    blocked = [(one["cluster"], one["until"]) for one in status.get("blocked") or ()]
    codes = [
        (condition["type"], condition["status"], condition["reason"]) for condition in status.get("conditions") or ()
    ]
    return {**{key: value for key, value in status.items() if key not in texts}, "blocked": blocked, "codes": codes}


def _pod(status: Mapping[str, Any]) -> dict[str, Any]:
    codes = [
        (condition["type"], condition["status"], condition.get("reason"))
        for condition in status.get("conditions") or ()
    ]
    rest = {key: value for key, value in status.items() if key not in ("message", "conditions")}
    return {**rest, "codes": codes}


def test_the_loss_of_a_cluster_that_is_still_syncing(other_words: None) -> None:
    sight = stores.Sight({"east": 3})
    member = sight.members["east"]
    member._note_error("probe", worker_cache.Syncing(worker_cache.FIRST_LISTS))
    (found,) = sight.fleet.unreachable_reasons().values()
    assert found.code is ReasonCode.CLUSTER_SYNCING
    lost = {"status": {"lostSince": "2026-01-02T03:04:05Z"}}
    silence = cluster_loss.loss_of_cluster(lost, found, timeout=timedelta(minutes=1))
    assert silence and silence.given_up_at is None, "nobody is given up while it is read"


@pytest.mark.parametrize("fits", [True, False])
def test_advice_for_a_waiting_gang(fits: bool, other_words: None) -> None:
    """Between two processes: the controller writes the code, and the command line reads it."""
    work = make_workload()
    code = ReasonCode.INSUFFICIENT_CAPACITY if fits else ReasonCode.NEVER_FITS
    raw = make_placement(work, shares={}, explanation="Anything.")
    raw["spec"] |= {"explanationCode": code.value, "check": CHECK}
    raw["status"] = messages.waiting_status(parse_placement(raw), at(5))
    facts = make_facts(work, placement=raw, job=make_job(), ray_cluster={}, pods=())
    assert bool(explain.diagnose(facts).advice) is fits


def test_the_state_of_a_remote_pod_without_a_node(other_words: None) -> None:
    """Between two processes: the mirror writes the reason, and the command line reads it."""
    pod = make_pod()
    no_node = make_condition("PodScheduled", False, reason="Unschedulable", message="0/3 nodes are available")
    remote = {**make_copy(pod), "status": {"phase": "Pending", "conditions": [no_node]}}
    patch = manager_pod_status.status_patch(pod, remote, "east")
    assert patch
    shown = {**pod, "status": {**pod["status"], **patch["status"]}}
    facts = make_facts(make_workload(), pods=[shown])
    assert (pod_state.read_pod_state(shown, facts).step, pod_state.read_pod_state(shown, facts).reason) == (
        "Unschedulable",
        "Unschedulable",
    )


def test_clusters_that_are_not_needed(other_words: None) -> None:
    verdicts = [
        Verdict("east", 4, 0, 4, 4, ""),
        Verdict("west", 4, 0, 4, 0, "x y", needed=False),
    ]
    assert "west" not in explanation.placed_sentence(test_planner.request(), verdicts)


def test_a_round_withdrawn_before_its_preemption(other_words: None) -> None:
    """A share that was not asked for did not fail the round."""
    given = test_lifecycle.gang(
        test_lifecycle.WORK, [test_lifecycle.preempting("west")], {"east": test_lifecycle.ASKED}
    )
    (body,) = (action.status for action in lifecycle.decide(given, at(99)) if isinstance(action, UpdatePlacementStatus))
    assert [one["cluster"] for one in body["blocked"]] == ["east"]
