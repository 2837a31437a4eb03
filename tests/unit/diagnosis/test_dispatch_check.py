"""Nothing can be dispatched: reported with the reason, and only if no queue leads to any cluster."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from adapter.admission.policy import PolicyObjects
from adapter.diagnosis import dispatch_check
from adapter.objects.unstructured import Raw, key_of
from tests.unit.builders import make_check, make_condition, make_policy, make_worker_cluster

QUEUE = {"metadata": {"name": "q"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "rayspan"}]}}}
WELL = make_condition("Connected", reason="Connected")


def check(status: bool = True, reason: str = "Ready", message: str = "A sentence.") -> Raw:
    return make_check(conditions=[make_condition("Active", status, reason=reason, message=message)])


def written(*clusters: Raw, policy: Raw | None = None) -> PolicyObjects:
    return PolicyObjects({"default": policy or make_policy()}, clusters)


EAST, WEST = make_worker_cluster("east", conditions=[WELL]), make_worker_cluster("west")
SILENT = (
    "none of east, west of DispatchPolicy default is connected and takes new workers; see `kubectl get workerclusters "
    "-o wide`."
)
NO_CHECK = "no ClusterQueue lists an AdmissionCheck of rayspan.dev/dispatch; add one to a queue."


@pytest.mark.parametrize(
    ("queues", "checks", "found", "why"),
    [
        pytest.param([QUEUE], [check()], written(EAST, WEST), "", id="one of two clusters is ready"),
        pytest.param([QUEUE], [check(reason="InvalidQueueLayout")], written(EAST), "", id="some of a layout may work"),
        pytest.param(
            [QUEUE],
            [check()],
            written(),
            "there is no WorkerCluster; create one with `kubectl rayspan join`.",
            id="no cluster",
        ),
        pytest.param([QUEUE], [check()], written(WEST), SILENT, id="a cluster without conditions"),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[make_condition("Connected", reason="NotClaimed")])),
            SILENT,
            id="a connected cluster without a claim",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(
                make_worker_cluster(
                    "east",
                    conditions=[
                        make_condition("Connected", reason="NotClaimed"),
                        make_condition("Ready", reason="NotClaimed"),
                    ],
                )
            ),
            "",
            id="a ready cluster where no claim can be held",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[WELL], cordoned=True)),
            SILENT,
            id="a cordoned cluster",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[WELL], draining=True)),
            SILENT,
            id="a drained cluster",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("north", conditions=[WELL])),
            SILENT,
            id="a cluster that the policy does not name",
        ),
        pytest.param([], [check()], written(EAST), NO_CHECK, id="a check in no queue"),
        pytest.param([QUEUE], [], written(EAST), NO_CHECK, id="a queue with a check that is not there"),
        pytest.param(
            [QUEUE], [check(reason="GateMissing")], written(EAST), "AdmissionCheck rayspan: A sentence.", id="no gate"
        ),
        pytest.param(
            [QUEUE],
            [check(False, "BadParameters")],
            written(EAST),
            "AdmissionCheck rayspan: A sentence.",
            id="an inactive check",
        ),
        pytest.param(
            [QUEUE],
            [make_check()],
            written(EAST),
            "AdmissionCheck rayspan: the controller has not reported on it.",
            id="a check that no controller has reconciled",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            PolicyObjects({}, [EAST]),
            "AdmissionCheck rayspan: spec.parameters names DispatchPolicy default, which does not exist; create it.",
            id="a policy that was just deleted",
        ),
    ],
)
def test_nothing_can_be_dispatched(queues: list[Raw], checks: list[Raw], found: PolicyObjects, why: str) -> None:
    assert dispatch_check.stopped_reason(queues, checks, found) == (f"Nothing can be dispatched: {why}" if why else "")


def test_one_dispatching_queue_is_enough() -> None:
    other: Raw = {**make_check(), "metadata": {"name": "aaa"}}
    both = {"metadata": {"name": "r"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "aaa"}]}}}
    assert dispatch_check.stopped_reason([QUEUE, both], [other, check()], written(EAST)) == ""


STOPPED_QUEUE = {
    **QUEUE,
    "status": {
        "conditions": [
            make_condition("Active", False, reason="Stopped", message="Can't admit new workloads: is stopped")
        ]
    },
}


def test_a_stopped_queue_dispatches_nothing() -> None:
    said = "ClusterQueue q admits no jobs; Kueue reports: Can't admit new workloads: is stopped."
    assert (
        dispatch_check.stopped_reason([STOPPED_QUEUE], [check()], written(EAST)) == f"Nothing can be dispatched: {said}"
    )
    other = {**QUEUE, "metadata": {"name": "r"}}
    assert dispatch_check.stopped_reason([STOPPED_QUEUE, other], [check()], written(EAST)) == ""
    assert dispatch_check.obstacles([STOPPED_QUEUE, other], [check()], written(EAST, WEST))[0] == said


def _closed(name: str, **spec: bool) -> Raw:
    return make_worker_cluster(name, conditions=[WELL], **spec)


UNREACHABLE = make_condition("Connected", False, reason="Unreachable", message="connection refused")


@pytest.mark.parametrize(
    ("queues", "checks", "found", "said"),
    [
        pytest.param(
            [QUEUE], [check()], written(EAST, make_worker_cluster("west", conditions=[WELL])), [], id="no obstacle"
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(_closed("east", cordoned=True), _closed("west", draining=True)),
            [
                "WorkerCluster east is cordoned; `kubectl rayspan uncordon east` lets new workers go there again.",
                "WorkerCluster west is draining; `kubectl rayspan uncordon west` lets new workers go there again.",
            ],
            id="cordoned and draining clusters",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(make_worker_cluster("east", conditions=[UNREACHABLE]), WEST),
            [
                "WorkerCluster east takes no workers (Unreachable): connection refused.",
                (
                    "WorkerCluster west takes no workers (Unknown): the controller has not reported on it; "
                    "see `kubectl -n rayspan-system get pods`."
                ),
            ],
            id="an unreachable and an unknown cluster",
        ),
        pytest.param(
            [QUEUE],
            [check()],
            written(EAST),
            [
                (
                    "DispatchPolicy default names WorkerCluster west, which does not exist; create it with "
                    "`kubectl rayspan join west`."
                )
            ],
            id="a named cluster that does not exist",
        ),
        pytest.param(
            [],
            [],
            written(),
            ["There is no WorkerCluster; create one with `kubectl rayspan join`.", f"N{NO_CHECK[1:]}"],
            id="no cluster and no check",
        ),
        pytest.param(
            [QUEUE], [check(reason="GateMissing")], written(EAST), ["AdmissionCheck rayspan: A sentence."], id="no gate"
        ),
    ],
)
def test_each_obstacle_is_reported(queues: list[Raw], checks: list[Raw], found: PolicyObjects, said: list[str]) -> None:
    assert dispatch_check.obstacles(queues, checks, found) == said


NO_LEADER = "No controller leads (Lease rayspan-system/rayspan-controller); see `kubectl -n rayspan-system get pods`."


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}, ""),
        ({"holderIdentity": "a", "renewTime": "2026-01-01T00:00:59.000000Z"}, ""),  # the clock of another machine
        (
            {"holderIdentity": "a", "renewTime": "2026-01-01T00:10:00.000000Z"},
            " since 2026-01-01T00:10:00.000000Z",
        ),  # no renewTime
        ({"holderIdentity": "", "renewTime": "2026-01-01T00:00:00.000000Z"}, " since 2026-01-01T00:00:00.000000Z"),
        ({"holderIdentity": "a", "renewTime": "2025-12-31T23:59:00.000000Z"}, " since 2025-12-31T23:59:00.000000Z"),
        ({"holderIdentity": "a"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_lease_that_is_not_renewed_is_reported(spec: Raw, said: str | None) -> None:
    found = dispatch_check.no_leader_reason({"spec": spec}, datetime(2026, 1, 1, tzinfo=UTC))
    assert found == ("" if said == "" else NO_LEADER.replace(" (Lease", f"{said or ''} (Lease"))


@pytest.mark.parametrize(
    ("leaderless", "unread", "lacks", "dispatches"),
    [
        ("", {}, (), True),
        ("Nobody leads.", {}, (), False),
        ("", {"leases": "no"}, (), True),
        ("", {"clusterqueues": "no"}, (), None),
        ("Nobody leads.", {"clusterqueues": "no"}, (), False),
        ("", {"clusterqueues": "no"}, ("clusterqueues",), False),
    ],
)
def test_an_unreadable_object_does_not_count_as_missing(
    leaderless: str, unread: dict[str, str], lacks: tuple[str, ...], dispatches: bool | None
) -> None:
    found = dispatch_check.describe_dispatch([QUEUE], [check()], written(EAST), leaderless, unread, lacks)
    assert found["dispatches"] is dispatches
    assert found["notes"] == [said for kind, said in unread.items() if kind not in lacks]


def test_a_policy_whose_cluster_stops_late_workers_first_has_a_note() -> None:
    objects = written(EAST)
    policies = {"default": make_policy(clusters=["east"], workerStartTimeout="40m")}
    found = dispatch_check.describe_dispatch([QUEUE], [check()], replace(objects, policies=policies), "", {}, ())
    (note,) = found["notes"]
    assert note.startswith("DispatchPolicy default: spec.workerStartTimeout is 40 min, and Kueue in east stops")
    assert found["dispatches"] is True


def test_a_queue_with_a_check_of_ours_has_notes() -> None:
    """They are no obstacle."""
    entry = {"apiVersion": "kueue.x-k8s.io/v1beta1", "manager": "argocd", "fieldsV1": {"f:spec": {}}}
    old = {**QUEUE, "metadata": {"name": key_of(QUEUE)[1], "managedFields": [entry]}}
    other = {"kind": "ClusterQueue", "metadata": {"name": "other", "managedFields": [entry]}, "spec": {}}
    found = dispatch_check.describe_dispatch([old, other], [check()], written(EAST), "", {}, ())
    (note,) = found["notes"]
    assert f"{key_of(QUEUE)[1]} was last written as kueue.x-k8s.io/v1beta1 by argocd" in note
    assert found["dispatches"] is True
