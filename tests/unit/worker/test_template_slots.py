"""Whether a pod has the slot that it came with: every reason why not, and who may have sent a copy that nobody sees."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import Raw
from adapter.worker.template_slots import (
    TemplateSlotFacts,
    may_have_been_sent,
    must_check_slot,
    owns_slot,
)
from tests.unit.builders import at, make_placement, make_pod, make_workload, stamp

PLACE = parse_placement(make_placement(make_workload()))
EAST0: dict[str, Any] = {"index": "0", "listed": "east/1/role-workers/2"}
CAME = make_pod(**EAST0)
FREE = TemplateSlotFacts(
    remote_pod_created=False,
    reachable=True,
    maybe_sent=False,
    create_unanswered=False,
    slot_shared=False,
    draining_clusters=frozenset(),
)


@pytest.mark.parametrize(
    ("pod", "facts", "want"),
    [
        pytest.param(CAME, FREE, True, id="nothing speaks against it"),
        pytest.param(CAME, replace(FREE, slot_shared=True), False, id="another one holds it"),
        pytest.param(CAME, replace(FREE, draining_clusters={"east"}), False, id="its cluster is drained"),
        pytest.param(CAME, replace(FREE, draining_clusters={"west"}), True, id="another one is"),
        pytest.param(make_pod(index="0", listed="east/2/role-workers/2"), FREE, False, id="of a round that is not"),
        pytest.param(make_pod(index="5", listed="east/1/role-workers/9"), FREE, False, id="more than the share has"),
        pytest.param(make_pod(group="gpu", **EAST0), FREE, False, id="another group's"),
        pytest.param(CAME, replace(FREE, reachable=False), False, id="out of sight, and nobody sent a copy"),
        pytest.param(CAME, replace(FREE, reachable=False, maybe_sent=True), True, id="out of sight, and somebody may have"),
        pytest.param(CAME, replace(FREE, reachable=False, maybe_sent=True, slot_shared=True, draining_clusters={"east"}), True, id="whatever else is known"),
        pytest.param(CAME, replace(FREE, create_unanswered=True, slot_shared=True, draining_clusters={"east"}), True, id="its copy was asked for"),
        pytest.param(make_pod(index="0", listed="east/2/role-workers/2"), replace(FREE, create_unanswered=True), False, id="on a share that goes"),
        pytest.param(CAME, replace(FREE, remote_pod_created=True, slot_shared=True, draining_clusters={"east"}), True, id="its copy is there"),
    ],
)  # fmt: skip
def test_whose_slot_it_is(pod: Raw, facts: TemplateSlotFacts, want: bool) -> None:
    assert owns_slot(PLACE, pod, facts) is want


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(CAME, True, id="it came with one"),
        pytest.param(make_pod(), False, id="it came with none"),
        pytest.param(make_pod(slot="east/1/role-workers/0", **EAST0), False, id="one was written"),
        pytest.param(make_pod(dispatched=True, **EAST0), False, id="its copy was seen"),
        pytest.param(make_pod(deleting=True, **EAST0), False, id="it goes"),
        pytest.param(make_pod(phase="Failed", **EAST0), False, id="it ended"),
    ],
)
def test_of_whom_it_is_asked(pod: Raw, want: bool) -> None:
    assert must_check_slot(pod) is want


@pytest.mark.parametrize(
    ("sent", "leads", "want"),
    [
        pytest.param(True, -3600, True, id="this process did"),
        pytest.param(False, -3600, False, id="the pod is younger than its lead"),
        pytest.param(False, 3600, True, id="it is older: who led before may have"),
        pytest.param(False, 0, False, id="it came at the same moment"),
        pytest.param(False, 1, True, id="or just before"),
        pytest.param(False, None, True, id="somebody else may lead still"),
    ],
)
def test_who_may_have_sent_a_copy(sent: bool, leads: float | None, want: bool) -> None:
    pod = {**CAME, "metadata": CAME["metadata"] | {"creationTimestamp": stamp(0)}}
    since = None if leads is None else at(0) + timedelta(seconds=leads)
    assert may_have_been_sent(pod, sent=sent, leads_since=since) is want


def test_of_a_pod_without_an_age_it_is_not_known() -> None:
    assert may_have_been_sent({"metadata": {}}, sent=False, leads_since=at(0))
