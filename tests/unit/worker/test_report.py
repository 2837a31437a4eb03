"""A copy that asks for more than its share holds runs, and is told of: on the job, and on the manager's pod."""

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


def share(held: Raw = ONE, usage: Raw | None = None) -> Reservation:
    """A share of two workers; `usage` is what Kueue counts for both."""
    raw = make_reservation(PLACE, counts={"role-workers": 2})
    raw["spec"]["podSets"][0]["template"] = {"spec": held}
    assigned = {"name": "role-workers", "count": 2, "resourceUsage": usage or {}}
    raw["status"]["admission"] = {"podSetAssignments": [assigned]}
    return parse_reservation("east", raw)


def copy(spec: Raw) -> Raw:
    return {**make_copy(POD), "spec": spec}


@pytest.mark.parametrize(
    ("spec", "found", "want"),
    [
        pytest.param(ONE, share(), "", id="as it is held"),
        pytest.param(MORE, share(MORE), "", id="the sidecar is held"),
        pytest.param(MORE, share(usage={"cpu": "3"}), "", id="Kueue counts what the template does not say"),
        pytest.param(MORE, share(), "cpu: 1500m instead of 1", id="more"),
        pytest.param(MORE, share(usage={"cpu": "2400m"}), "cpu: 1500m instead of 1200m", id="more than Kueue counts"),
        pytest.param(MORE, None, "", id="nothing is known of its share"),
    ],
)
def test_what_a_copy_asks_for_beyond_its_share(spec: Raw, found: Reservation | None, want: str) -> None:
    told = report.excess_message(copy(spec), found, SLOT, "east")
    assert (want in told and told.startswith("A worker in east runs with more")) if want else not told


def test_a_slot_that_somebody_wrote_is_no_share() -> None:
    assert report.excess_message(copy(MORE), share(), Slot.parse("east/1"), "east") == ""


def test_it_is_said_on_the_job_and_on_the_pod() -> None:
    text, job = report.excess_message(copy(MORE), share(), SLOT, "east"), parse_workload(WORK).job
    assert job
    patch, said = report.mirror_status(job, POD, copy(MORE), "east", at(60), text)
    assert said == EmitEvent(job, names.EventReason.POD_EXCEEDS_SHARE, text, warning=True)
    assert isinstance(patch, PatchPodStatus)
    assert condition({"status": patch.body["status"]}, names.DISPATCHED_CONDITION)["message"] == text
    settled = {**POD, "status": {**POD["status"], **patch.body["status"]}}
    assert report.mirror_status(job, settled, copy(MORE), "east", at(61), text) == [], "and once"


def test_a_look_at_the_worker_tells_it() -> None:
    seen = worker(POD, {"east": copy(MORE)}, reservations={("east", 1): share()})
    assert [one.reason for one in decide(seen, at(60)) if isinstance(one, EmitEvent)] == ["PodExceedsShare"]
