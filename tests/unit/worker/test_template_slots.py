"""Whether a pod owns its template slot, and whether an unobserved remote pod of it may exist."""

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
        pytest.param(CAME, FREE, True, id="a free planned slot"),
        pytest.param(CAME, replace(FREE, slot_shared=True), False, id="another pod holds the slot"),
        pytest.param(CAME, replace(FREE, draining_clusters={"east"}), False, id="the slot's cluster is draining"),
        pytest.param(CAME, replace(FREE, draining_clusters={"west"}), True, id="another cluster is draining"),
        pytest.param(make_pod(index="0", listed="east/2/role-workers/2"), FREE, False, id="a slot of another round"),
        pytest.param(make_pod(index="5", listed="east/1/role-workers/9"), FREE, False,
                     id="a slot beyond the share's count"),
        pytest.param(make_pod(group="gpu", **EAST0), FREE, False, id="a slot of another worker group"),
        pytest.param(CAME, replace(FREE, reachable=False), False, id="unreachable cluster, no create was sent"),
        pytest.param(CAME, replace(FREE, reachable=False, maybe_sent=True), True,
                     id="unreachable cluster, a create may have been sent"),
        pytest.param(CAME,
                     replace(FREE, reachable=False, maybe_sent=True, slot_shared=True,
                             draining_clusters={"east"}), True,
                     id="unreachable draining cluster, shared slot, a create may have been sent"),
        pytest.param(CAME, replace(FREE, create_unanswered=True, slot_shared=True, draining_clusters={"east"}), True,
                     id="a create has no answer"),
        pytest.param(make_pod(index="0", listed="east/2/role-workers/2"), replace(FREE, create_unanswered=True), False,
                     id="a create has no answer, on a share outside of the plan"),
        pytest.param(CAME, replace(FREE, remote_pod_created=True, slot_shared=True, draining_clusters={"east"}), True,
                     id="the remote pod exists"),
    ],
)  # fmt: skip
def test_owns_slot(pod: Raw, facts: TemplateSlotFacts, want: bool) -> None:
    assert owns_slot(PLACE, pod, facts) is want


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(CAME, True, id="a template slot"),
        pytest.param(make_pod(), False, id="no slot"),
        pytest.param(make_pod(slot="east/1/role-workers/0", **EAST0), False, id="a written slot"),
        pytest.param(make_pod(dispatched=True, **EAST0), False, id="a dispatched pod"),
        pytest.param(make_pod(deleting=True, **EAST0), False, id="a pod that is being deleted"),
        pytest.param(make_pod(phase="Failed", **EAST0), False, id="an ended pod"),
    ],
)
def test_must_check_slot(pod: Raw, want: bool) -> None:
    assert must_check_slot(pod) is want


@pytest.mark.parametrize(
    ("sent", "leads", "want"),
    [
        pytest.param(True, -3600, True, id="this process sent it"),
        pytest.param(False, -3600, False, id="the pod is younger than the lead"),
        pytest.param(False, 3600, True, id="the pod is older than the lead"),
        pytest.param(False, 0, False, id="the pod is as old as the lead"),
        pytest.param(False, 1, True, id="the pod is one second older than the lead"),
        pytest.param(False, None, True, id="this process does not lead"),
    ],
)
def test_may_have_been_sent(sent: bool, leads: float | None, want: bool) -> None:
    pod = {**CAME, "metadata": CAME["metadata"] | {"creationTimestamp": stamp(0)}}
    since = None if leads is None else at(0) + timedelta(seconds=leads)
    assert may_have_been_sent(pod, sent=sent, leads_since=since) is want


def test_a_pod_without_an_age_may_have_been_sent() -> None:
    assert may_have_been_sent({"metadata": {}}, sent=False, leads_since=at(0))
