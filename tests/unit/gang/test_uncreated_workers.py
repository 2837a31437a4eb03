"""A running gang of which some workers are never created gives back the quota that nobody can use."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, EmitEvent, Plan, RequeueAfter, SetCheck
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.uncreated_workers import (
    ANY_WORKER,
    NO_MANAGER_POD,
    creation_waiters,
    name_of_share,
    uncreated_workers,
)
from adapter.objects.placement import Exclusion, PlacementState, ShareKey, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import Job, Workload, parse_workload
from tests.unit.builders import (
    CHECK,
    START,
    at,
    make_condition,
    make_copy,
    make_placement,
    make_pod,
    make_reservation,
    make_workload,
)
from tests.unit.fact_builders import make_gang
from tests.unit.stores import Sight, fill

WORK = make_workload(check=names.CHECK_READY)
PLACED = make_placement(WORK, placedRound=1, state=PlacementState.PLACED)  # two workers in east, and two in west
PLACEMENT = parse_placement(PLACED)
EAST, WEST = ShareKey("east", 1), ShareKey("west", 1)
HEAD = {"metadata": {"name": "head"}, "status": {"conditions": [make_condition("Ready")]}}


def pod(name: str, slot: str, *, created: bool = False) -> Raw:
    return make_pod(name, placement=PLACEMENT.name, slot=slot, dispatched=created)


E0, E1 = (pod(name, f"east/1/role-workers/{index}", created=True) for index, name in enumerate("ab"))
W0, W1 = (pod(name, f"west/1/role-workers/{index}") for index, name in enumerate("cd"))
SLOTLESS = pod("e", "")
QUOTALESS = {**SLOTLESS, "spec": {"schedulingGates": [{"name": names.ELASTIC_GATE}]}}


def ready_copy(manager_pod: Raw) -> Raw:
    copy = make_copy(manager_pod)
    copy["status"]["conditions"] = [make_condition("Ready")]
    return copy


def workers_with(*pods: Raw, desired: int = 4, created: Sequence[Raw] = (), **more: Any) -> GangWorkers:
    return GangWorkers(
        PLACEMENT,
        pods,
        {key_of(each): ready_copy(each) for each in created},
        {slot for each in pods if (slot := slot_of(each))},
        frozenset({EAST, WEST}),
        desired,
        START,
        HEAD,
        **more,
    )


def gang(workers: GangWorkers | None, **more: Any) -> Gang:
    """A gang that runs, all of whose shares are admitted."""
    reservations = (parse_reservation(cluster, make_reservation(PLACED)) for cluster in ("east", "west"))
    facts: Raw = {
        "workload": parse_workload(WORK),
        "check": CHECK,
        "placements": (PLACEMENT,),
        "reservations": tuple(reservations),
        "workers": workers,
        "shares_with_pods": frozenset({EAST, WEST}),
        "shares_with_remote_pods": frozenset({EAST}),
    }
    return make_gang(**{**facts, **more})


ELASTIC = replace(PLACEMENT, job=parse_workload(WORK).job)


@pytest.mark.parametrize(
    ("workers", "more", "expected"),
    [
        pytest.param(workers_with(E0, E1, W0, W1), {}, [W0, W1], id="two workers have a slot and no remote pod"),
        pytest.param(workers_with(E0, E1, W0, W1, created=[W0]), {}, [W1], id="one of them is created"),
        pytest.param(workers_with(E0, E1), {}, [NO_MANAGER_POD], id="two manager pods are missing"),
        pytest.param(workers_with(E0, E1, desired=2), {}, [], id="the RayCluster wants no more workers"),
        pytest.param(workers_with(E0, E1, W0, W1, desired=9), {}, [W0, W1],
            id="no slot is free for manager pods that are missing"),
        pytest.param(workers_with(E0, E1, SLOTLESS, desired=3), {}, [SLOTLESS],
            id="a worker gets none of the free slots"),
        pytest.param(workers_with(E0, E1, QUOTALESS, desired=2), {}, [], id="a worker waits for the manager's quota"),
        pytest.param(replace(workers_with(E0, E1, W0, W1), admitted_shares={EAST}), {}, [],
            id="a share without quota is waited for"),
        pytest.param(workers_with(E0, E1, W0, W1), {"unreachable": {"west": "is unreachable"}}, [],
            id="what an unreachable cluster has created is not known"),
        pytest.param(workers_with(E0, E1, W0, W1), {"draining": frozenset({"west"})}, [],
            id="a cluster that is drained gets no worker"),
        pytest.param(workers_with(E0, E1, W0, W1),
            {"workload": parse_workload(make_workload(check=names.CHECK_PENDING))}, [], id="the job does not run yet"),
        pytest.param(None, {}, [], id="all workers are ready"),
    ],
)  # fmt: skip
def test_which_workers_are_not_created(workers: GangWorkers | None, more: Raw, expected: list[Raw | str]) -> None:
    uids = [each if isinstance(each, str) else uid_of(each) for each in expected]
    assert uncreated_workers(gang(workers, **more)) == uids


def hosts_of_a_replica(*created: Raw, **more: Any) -> Gang:
    """A gang of one replica with four hosts, all in east; these of them are created."""
    placed = make_placement(WORK, shares={"east": {"workers": 4}}, placedRound=1, state=PlacementState.PLACED)
    placed["spec"]["shares"][0]["groups"][0]["hosts"] = 4
    placement = parse_placement(placed)
    workers = replace(workers_with(*created, created=created), placement=placement, admitted_shares={EAST})
    reservations = (parse_reservation("east", make_reservation(placed)),)
    return gang(workers if created else None, **{"placements": (placement,), "reservations": reservations, **more})


def host(index: int) -> Raw:
    made = pod(f"host-{index}", f"east/1/role-workers/{index}", created=True)
    made["metadata"]["labels"] |= {names.RAY_REPLICA_NAME_LABEL: "r", names.RAY_HOST_INDEX_LABEL: str(index)}
    return made


HOSTS = [host(index) for index in range(4)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(hosts_of_a_replica(*HOSTS[:3]), [NO_MANAGER_POD, ANY_WORKER],
            id="a replica lacks a host, and no block is free"),
        pytest.param(hosts_of_a_replica(), [NO_MANAGER_POD, ANY_WORKER], id="KubeRay has deleted the replica"),
        pytest.param(hosts_of_a_replica(shares_with_live_manager_pods=frozenset({EAST})), [],
            id="all workers are ready"),
        pytest.param(hosts_of_a_replica(*HOSTS), [], id="all hosts are created"),
        pytest.param(hosts_of_a_replica(reservations=()), [], id="it holds no quota"),
    ],
)  # fmt: skip
def test_hosts_that_kuberay_cannot_create_hold_quota(found: Gang, expected: list[str]) -> None:
    """KubeRay deletes a replica that lacks a host, and creates it again: the wait goes on meanwhile."""
    assert [waiter for waiter in creation_waiters(found) if "/" not in waiter] == expected


def test_a_gang_whose_pods_are_replaced_again_and_again_queues_again() -> None:
    found = gang(PARTLY, uncreated_since={**since(W1, seconds=890), **since(ANY_WORKER)})
    (check,) = [action for action in decided(found, 900) if isinstance(action, SetCheck)]
    assert check.message.startswith("1 worker of the job was not created in a worker cluster within 900s")


# --- all workers must start ------------------------------------------------------------------------------------------

QUOTA = 'pods "train-worker-x" is forbidden: exceeded quota: team-a, requested: requests.cpu=1'


def since(*workers: Raw | str, seconds: float = 0) -> Raw:
    return {each if isinstance(each, str) else uid_of(each): at(seconds) for each in workers}


def decided(found: Gang, seconds: float) -> list[Action]:
    kinds = EmitEvent | SetCheck | Plan
    return [action for action in decide(found, at(seconds)) if isinstance(action, kinds)]


@pytest.mark.parametrize(
    ("workers", "waits", "text"),
    [
        pytest.param(workers_with(E0, E1, W0, W1, created=[W0]), since(W1),
            "1 worker of the job was not created in a worker cluster within 900s (2 east, 2 west): the events of the "
            "job with reason WorkerFailing say why its remote pods are not created.",
            id="a remote pod is never created"),
        pytest.param(workers_with(E0, creation_failure=QUOTA), since(NO_MANAGER_POD),
            "3 workers of the job were not created in a worker cluster within 900s (2 east, 2 west): KubeRay could not "
            f"create manager pods: {QUOTA}.", id="the manager cluster denies pods"),
        pytest.param(workers_with(E0, E1, W0), since(NO_MANAGER_POD, W0),
            "2 workers of the job were not created in a worker cluster within 900s (2 east, 2 west): the manager "
            "cluster has no manager pod of them. KubeRay's events on the RayCluster say why it creates none; a "
            "ResourceQuota of the namespace, for example, must allow the pods of all workers.",
            id="KubeRay gives no reason"),
    ],
)  # fmt: skip
def test_a_gang_that_needs_all_workers_queues_again_with_the_reason(
    workers: GangWorkers, waits: Raw, text: str
) -> None:
    found = gang(workers, uncreated_since=waits)
    assert not any(isinstance(action, SetCheck) for action in decided(found, 899))
    event, check = decided(found, 900)
    text += " The job needs all of its workers, so it gives its capacity back and queues again."
    assert isinstance(event, EmitEvent) and isinstance(check, SetCheck)
    assert (event.reason, event.message) == (names.EventReason.START_TIMEOUT, text)
    assert (check.state, check.message) == (names.CHECK_RETRY, text)


def test_before_the_timeout_the_gang_is_requeued_in_time() -> None:
    actions = decide(gang(workers_with(E0, E1, W0, W1), uncreated_since=since(W0) | since(W1, seconds=9)), at(890))
    assert min(action.delay for action in actions if isinstance(action, RequeueAfter)) == timedelta(seconds=10)


def of_a_service() -> Workload:
    workload = parse_workload(WORK)
    assert workload.job
    service = Job("ray.io/v1", names.RAY_SERVICE, workload.namespace, "chat", "of-chat")
    return replace(workload, job=replace(workload.job, service=service))


PARTLY = workers_with(E0, E1, W0, W1, created=[W0])


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        pytest.param(replace(PARTLY, was_complete=True), {}, id="all of its workers ran once"),
        pytest.param(PARTLY, {"all_or_nothing": False}, id="it may run with a part of its workers"),
        pytest.param(PARTLY, {"placements": (ELASTIC,)}, id="it is elastic"),
        pytest.param(PARTLY, {"workload": of_a_service()}, id="it serves a RayService"),
        pytest.param(PARTLY, {"unreachable": {"east": "is unreachable"}}, id="one of its clusters is unreachable"),
    ],
)
def test_a_gang_that_may_compute_is_never_stopped(workers: GangWorkers, more: Raw) -> None:
    found = gang(workers, **{"uncreated_since": since(W1), "shares_with_remote_pods": frozenset({EAST, WEST}), **more})
    assert not any(isinstance(action, SetCheck) for action in decided(found, 9000))


# --- a part of the workers may do ------------------------------------------------------------------------------------

NONE_IN_WEST = workers_with(E0, E1, W0, W1)
WEST_IS_EMPTY = name_of_share(WEST)
WEST_WAITS = since(W0, W1, WEST_IS_EMPTY)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"all_or_nothing": False}, id="a gang BestEffort"),
        pytest.param({"placements": (ELASTIC,)}, id="an elastic job"),
        pytest.param({"workers": replace(NONE_IN_WEST, was_complete=True)}, id="a gang that was complete"),
        pytest.param({"workload": of_a_service()}, id="a RayCluster of a RayService"),
    ],
)
def test_a_share_whose_workers_are_never_created_is_given_back_and_the_others_run_on(more: Raw) -> None:
    found = gang(**{"workers": NONE_IN_WEST, "uncreated_since": WEST_WAITS, **more})
    assert not any(isinstance(action, Plan) for action in decided(found, 899))
    event, plan = decided(found, 900)
    reason = "the events of the job with reason WorkerFailing say why its remote pods are not created"
    text = (
        "2 workers of the job were not created in a worker cluster within 900s, so their capacity was given back "
        f"(2 west): {reason}."
    )
    assert isinstance(event, EmitEvent) and isinstance(plan, Plan)
    assert (event.reason, event.message, plan.lost_reason) == (names.EventReason.START_TIMEOUT, text, text)
    assert [share.cluster for share in plan.kept_shares or ()] == ["east"]
    assert [(each.cluster, each.until) for each in plan.exclusions] == [("west", at(1800))]
    assert plan.exclusions[0].reason == f"workers were not created: {reason}"
    assert plan.start_timed_out, "the next exclusion is twice as long"


@pytest.mark.parametrize(
    ("workers", "more", "is_given_back"),
    [
        pytest.param(NONE_IN_WEST, {"uncreated_since": since(W0, WEST_IS_EMPTY)}, False,
            id="one of its workers may still be created"),
        pytest.param(PARTLY, {"shares_with_remote_pods": frozenset({EAST, WEST})}, False,
            id="a worker on the share computes"),
        pytest.param(workers_with(E0, E1), {"uncreated_since": since(NO_MANAGER_POD, WEST_IS_EMPTY)}, True,
            id="the share has no manager pod"),
        pytest.param(workers_with(E0, E1), {"uncreated_since": since(NO_MANAGER_POD) | since(WEST_IS_EMPTY, seconds=1)},
            False, id="the share was admitted a moment ago, and pods were missing before"),
        pytest.param(NONE_IN_WEST, {"unreachable": {"west": "is unreachable"}}, False, id="its cluster is unreachable"),
        pytest.param(NONE_IN_WEST, {"clusters": ()}, False, id="the policy cannot be read"),
    ],
)  # fmt: skip
def test_which_share_is_given_back(workers: GangWorkers, more: Raw, is_given_back: bool) -> None:
    found = gang(workers, **{"all_or_nothing": False, "uncreated_since": WEST_WAITS, **more})
    plans = [action for action in decided(found, 900) if isinstance(action, Plan)]
    assert [[share.cluster for share in plan.kept_shares or ()] for plan in plans] == (
        [["east"]] if is_given_back else []
    )


@pytest.mark.parametrize(
    ("workers", "waits", "times", "clusters", "seconds"),
    [
        pytest.param(NONE_IN_WEST, WEST_WAITS, 1, ("east", "west"), 1800, id="another cluster did not help before"),
        pytest.param(NONE_IN_WEST, WEST_WAITS, 5, ("east", "west"), 3600, id="it never helps"),
        pytest.param(NONE_IN_WEST, WEST_WAITS, 0, ("west",), 900, id="there is no other cluster"),
        pytest.param(workers_with(E0, E1), since(NO_MANAGER_POD, WEST_IS_EMPTY), 0, ("east", "west"), 900,
            id="the manager cluster denies the manager pods"),
    ],
)  # fmt: skip
def test_workers_that_no_cluster_creates_are_withheld_and_close_no_cluster(
    workers: GangWorkers, waits: Raw, times: int, clusters: tuple[str, ...], seconds: float
) -> None:
    """Otherwise the next plan would take as much capacity again, or the gang's other workers would find none."""
    placement = replace(PLACEMENT, start_timeouts=times)
    found = gang(workers, all_or_nothing=False, uncreated_since=waits, placements=(placement,), clusters=clusters)
    (plan,) = [action for action in decided(found, 900) if isinstance(action, Plan)]
    assert plan.exclusions == () and plan.start_timed_out
    assert (plan.withheld_workers, plan.withheld_for) == ({"workers": 2}, timedelta(seconds=seconds))
    refused = {uid_of(each) for each in workers.pods} & {uid_of(W0), uid_of(W1)}
    assert plan.newly_withheld and plan.newly_withheld.pods == refused
    assert sum(group.count for group in plan.newly_withheld.missing) == 2 - len(refused)


# --- the facts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "suspended"])
def test_the_observer_reads_since_when_workers_are_not_created(state: str) -> None:
    sight = Sight({"east": 9, "west": 9})
    failure = {**make_condition("RayClusterReplicaFailure"), "message": QUOTA}
    groups = [{"groupName": "workers", "replicas": 4, "minReplicas": 4, "maxReplicas": 4}]
    ray_cluster = {
        "metadata": {"name": "train", "namespace": PLACEMENT.namespace, "uid": "uid-of-train"},
        "spec": {"workerGroupSpecs": groups},
        "status": {"state": state, "conditions": [failure]},
    }
    labelled = [
        {**each, "metadata": {**each["metadata"], "labels": {**each["metadata"]["labels"], "ray.io/cluster": "train"}}}
        for each in (E0, W0)
    ]
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, PLACED)
    fill(sight.manager.ray_clusters, ray_cluster)
    fill(sight.manager.pods, *labelled)
    for cluster in ("east", "west"):
        fill(sight.members[cluster].workloads, make_reservation(PLACED))
    for seconds in (3.0, 8.0):
        sight.memory._monotonic = lambda seconds=seconds: seconds  # type: ignore[misc]
        facts = sight.facts.gang_observer.facts(key_of(WORK), at(seconds))
        expected = since(W0, NO_MANAGER_POD, ANY_WORKER, name_of_share(WEST), seconds=3)
        assert facts.pods.uncreated_since.items() >= expected.items()
    assert facts.pods.workers
    assert (facts.pods.workers.was_complete, facts.pods.workers.creation_failure) == (state == "ready", QUOTA)
    assert (facts.policy.all_or_nothing, facts.policy.clusters) == (True, ("east", "west"))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"unreachable": {"north": "syncing", "east": "syncing"}}, id="unreachable for a moment"),
        pytest.param({"draining": frozenset({"north"})}, id="drained"),
        pytest.param(
            {
                "placements": (
                    replace(PLACEMENT, exclusions=(Exclusion("north", at(905), "x"), Exclusion("east", at(905), "x"))),
                )
            },
            id="excluded for some seconds",
        ),
    ],
)
def test_a_cluster_that_creates_no_workers_is_excluded_although_no_other_is_open_now(more: dict[str, Any]) -> None:
    """The others may open within seconds, and the workers are not withheld for minutes."""
    facts = {"placements": (PLACEMENT,), "clusters": ("east", "west", "north"), **more}
    gang_facts = gang(NONE_IN_WEST, all_or_nothing=False, uncreated_since=WEST_WAITS, **facts)
    (plan,) = (action for action in decided(gang_facts, 900) if isinstance(action, Plan))
    assert "west" in {exclusion.cluster for exclusion in plan.exclusions}
    assert plan.newly_withheld is None and not plan.withheld_workers


@pytest.mark.parametrize("refused", [True, False], ids=["rejected by a check", "deactivated"])
def test_a_running_share_that_kueue_ended_is_planned_again_while_its_pods_end(refused: bool) -> None:
    """A pod on a lost node may take for ever to end."""
    ended = replace(
        parse_reservation("west", make_reservation(PLACED)), admitted=False, ended=True, eviction_message="x",
        refusal="no capacity" if refused else "",
    )  # fmt: skip
    facts = gang(
        workers_with(E0, E1, W0, W1), reservations=(parse_reservation("east", make_reservation(PLACED)), ended),
        all_or_nothing=False, shares_with_remote_pods=frozenset({EAST, WEST}),
    )  # fmt: skip
    (plan,) = (action for action in decided(facts, 30) if isinstance(action, Plan))
    assert [share.cluster for share in plan.kept_shares or ()] == ["east"]
