"""Which workload slice stands for an elastic job, the names of its gang and Placement, and which slices the
Placement belongs to."""

import pytest

from adapter import names
from adapter.objects.placement import Placement, gang_name_of, parse_placement, placement_manifest, placement_name
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import active_slice, gang_key, is_elastic_gang, parse_workload
from tests.unit.builders import make_placement, make_workload, stamp


def made(
    number: int, *, state: str = "reserved", elastic: bool = True, created: float | None = None, reserved: float = 0
) -> Raw:
    """A slice of the job: waiting, reserved, evicted, replaced, finished."""
    more: list[str] = {"evicted": [names.EVICTED], "replaced": [names.FINISHED], "finished": [names.FINISHED]}.get(
        state, []
    )
    raw = make_workload(
        name=f"train-{number}", owner="RayCluster", reserved=None if state == "waiting" else reserved, conditions=more
    )
    raw["metadata"]["creationTimestamp"] = stamp(number if created is None else created)
    if elastic:
        raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    for condition in raw["status"]["conditions"]:
        if condition["type"] == names.FINISHED:
            condition["reason"] = names.SLICE_REPLACED if state == "replaced" else "Succeeded"
    return raw


@pytest.mark.parametrize(
    ("states", "want"),
    [
        (["reserved"], 0),
        (["reserved", "waiting"], 0),  # the next slice has no quota yet: the first one runs on
        (["reserved", "reserved"], 1),  # Kueue is about to finish the first
        (["replaced", "reserved"], 1),
        (["replaced", "replaced", "reserved"], 2),
        (["evicted", "waiting"], 1),
        (["replaced", "evicted"], 1),
        (["replaced", "finished"], 1),
        (["finished"], 0),
        (["replaced", "replaced"], 1),  # and its successor is still to be created
        (["reserved", "waiting", "waiting"], 0),
    ],
)
def test_the_newest_slice_with_quota_stands_for_the_job(states: list[str], want: int) -> None:
    slices = [made(number, state=state) for number, state in enumerate(states)]
    for order in (slices, slices[::-1]):
        found = active_slice(order)
        assert found and found["metadata"]["name"] == f"train-{want}"


def test_of_two_slices_of_one_second_the_uid_decides_as_in_kueue() -> None:
    found = active_slice([made(2, created=0), made(1, created=0)])
    assert found and found["metadata"]["uid"] == "uid-of-train-2"
    assert active_slice([]) is None


def test_all_slices_and_attempts_have_one_gang_and_one_placement_name() -> None:
    first, later, again = made(1), made(2), made(1, reserved=60)
    read = [parse_workload(raw) for raw in (first, later, again)]
    assert len({workload.attempt for workload in read}) == 3
    assert len({(workload.gang_name, placement_name(workload), workload.gang_uid) for workload in read}) == 1
    assert is_elastic_gang(read[0].gang_name) and gang_key(first) == read[0].gang_key


def test_another_job_has_a_gang_per_workload_and_a_placement_name_per_attempt() -> None:
    first, again = made(1, elastic=False), made(1, elastic=False, reserved=60)
    assert parse_workload(first).gang_name == "train-1" and gang_key(first) == ("demo", "train-1")
    assert placement_name(parse_workload(first)) != placement_name(parse_workload(again))


@pytest.mark.parametrize(("state", "finished", "replaced"), [("replaced", False, True), ("finished", True, False)])
def test_a_replaced_slice_is_not_finished(state: str, finished: bool, replaced: bool) -> None:
    read = parse_workload(made(1, state=state))
    assert (read.finished, read.replaced) == (finished, replaced)
    plain = parse_workload(made(1, state=state, elastic=False))
    assert (plain.finished, plain.replaced) == (True, False)


def test_an_elastic_ray_service_is_not_supported() -> None:
    """Kueue makes slices of it, too."""
    raw = made(1)
    raw["metadata"]["ownerReferences"][0]["kind"] = "RayService"
    assert not parse_workload(raw).elastic and gang_key(raw) == ("demo", "train-1")


def placed(raw: Raw, *, elastic: bool = True) -> Placement:
    work = parse_workload(raw)
    body = make_placement(raw)
    if elastic and work.job:
        body["spec"]["job"] = {"kind": "RayCluster", "name": "train", "uid": work.job.uid, "apiVersion": "ray.io/v1"}
    return parse_placement(body)


@pytest.mark.parametrize(
    ("of", "now", "want"),
    [
        (made(1), made(1), True),
        (made(1), made(2), True),  # the next slice, for which its Placement was not retargeted yet
        (made(1), made(1, reserved=60), False),  # the same slice, evicted meanwhile
        (made(1), made(2, state="waiting"), False),
        (made(1), made(2, state="finished"), False),
    ],
)
def test_the_placement_of_an_elastic_job_belongs_to_its_next_slice(of: Raw, now: Raw, want: bool) -> None:
    assert placed(of).belongs_to(parse_workload(now)) is want
    assert placed(of, elastic=False).belongs_to(parse_workload(now)) is (want and of["metadata"] == now["metadata"])


def test_the_placement_of_an_elastic_job_is_owned_by_the_job() -> None:
    place = placed(made(1))
    work = parse_workload(made(1))
    body = placement_manifest(place, work.job, "rayspan", ())
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("RayCluster", work.gang_uid, False)
    assert parse_placement(body).job == place.job and gang_name_of(body) == place.gang_name == work.gang_name
    plain = placement_manifest(placed(made(1), elastic=False), work.job, "rayspan", ())
    assert plain["metadata"]["ownerReferences"][0]["kind"] == "Workload" and gang_name_of(plain) == "train-1"
    assert plain["spec"]["job"] == {"kind": "RayCluster", "name": "train"}
