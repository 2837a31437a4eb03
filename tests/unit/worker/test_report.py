"""A remote pod that requests more than its share reserves runs, and is reported on the job and the manager pod."""

import pytest

from adapter import names
from adapter.actions import EmitEvent, PatchPodStatus
from adapter.objects.placement import ShareKey
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import condition
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import parse_workload
from adapter.worker import report
from adapter.worker.dispatch import decide
from tests.unit.builders import at, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.worker.test_dispatch import worker

SLOT = Slot(ShareKey("east", 1), "role-workers", 0)
WORK = make_workload()
PLACE = make_placement(WORK)
POD = make_pod(placement=PLACE["metadata"]["name"], slot=SLOT, dispatched=True)
ONE = {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}
MORE = {"containers": [*ONE["containers"], {"name": "mesh", "resources": {"requests": {"cpu": "500m"}}}]}


def share(reserved: Raw = ONE, usage: Raw | None = None) -> Reservation:
    """A share of two workers; `usage` is what Kueue counts for both."""
    raw = make_reservation(PLACE, counts={"role-workers": 2})
    raw["spec"]["podSets"][0]["template"] = {"spec": reserved}
    assigned = {"name": "role-workers", "count": 2, "resourceUsage": usage or {}}
    raw["status"]["admission"] = {"podSetAssignments": [assigned]}
    return parse_reservation("east", raw)


def copy(spec: Raw) -> Raw:
    return {**make_copy(POD), "spec": spec}


@pytest.mark.parametrize(
    ("spec", "reservation", "want"),
    [
        pytest.param(ONE, share(), "", id="the reserved requests"),
        pytest.param(MORE, share(MORE), "", id="a reserved sidecar"),
        pytest.param(MORE, share(usage={"cpu": "3"}), "", id="more than the template, counted by Kueue"),
        pytest.param(MORE, share(), "cpu: 1500m instead of 1", id="more than the template"),
        pytest.param(MORE, share(usage={"cpu": "2400m"}), "cpu: 1500m instead of 1200m", id="more than Kueue counts"),
        pytest.param(MORE, None, "", id="an unknown share"),
    ],
)
def test_excess_message(spec: Raw, reservation: Reservation | None, want: str) -> None:
    message = report.excess_message(copy(spec), reservation, SLOT, "east")
    assert (want in message and message.startswith("A worker in east requests more")) if want else not message


def test_an_invalid_slot_has_no_excess() -> None:
    assert report.excess_message(copy(MORE), share(), Slot.parse("east/1"), "east") == ""


def test_an_excess_is_reported_on_the_job_and_on_the_pod() -> None:
    text, job = report.excess_message(copy(MORE), share(), SLOT, "east"), parse_workload(WORK).job
    assert job
    patch, event = report.mirror_status(job, POD, copy(MORE), "east", at(60), text)
    assert event == EmitEvent(job, names.EventReason.POD_EXCEEDS_SHARE, text, warning=True)
    assert isinstance(patch, PatchPodStatus)
    assert condition({"status": patch.body["status"]}, names.DISPATCHED_CONDITION)["message"] == text
    settled = {**POD, "status": {**POD["status"], **patch.body["status"]}}
    assert report.mirror_status(job, settled, copy(MORE), "east", at(61), text) == [], "it is reported once"


def test_reconciling_a_worker_reports_its_excess() -> None:
    facts = worker(POD, {"east": copy(MORE)}, reservations={("east", 1): share()})
    assert [action.reason for action in decide(facts, at(60)) if isinstance(action, EmitEvent)] == ["PodExceedsShare"]
