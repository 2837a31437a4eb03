"""When workers in an unreachable cluster count as lost, and the order in which workers leave a draining one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapter import names
from adapter.objects import specs
from adapter.objects import unstructured as facts
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.specs import parse_dispatch_policy
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.clusters.worker_cache import FIRST_LISTS, Syncing
from adapter.shell.kube.client import Unreachable
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from tests.unit.builders import (
    NAMESPACE,
    at,
    make_condition,
    make_copy,
    make_meta,
    make_placement,
    make_pod,
    make_policy,
    make_ray_cluster,
    make_reservation,
    make_worker_cluster,
    make_workload,
    stamp,
)
from tests.unit.stores import Sight, fill

MINUTE = timedelta(minutes=1)
PLACE = make_placement(make_workload())
NAME = PLACE["metadata"]["name"]


def lost_east(since: float | None) -> Sight:
    """East is silent; its WorkerCluster says since when, if it was noted."""
    sight = Sight({"east": 8, "west": 8})
    raw = make_worker_cluster("east")
    raw["status"] |= {"lostSince": stamp(since)} if since is not None else {}
    fill(sight.manager.worker_clusters, raw, make_worker_cluster("west"))
    sight.members["east"]._note_error("probe", Unreachable("no answer"))
    return sight


def losses(sight: Sight, **nodes: bool) -> ClusterLosses:
    """The head of the pods' RayCluster was asked, and hears from these nodes."""
    found = ClusterLosses(sight.manager, sight.fleet)
    found._live_nodes[NAMESPACE, "train-abc"] = nodes, 0.0
    return found


def test_a_share_that_cannot_be_read_hides_its_cluster_from_its_own_gang_only() -> None:
    """West sends wrong types. A gang with a share there uses the last known state; other gangs are not affected."""
    sight = Sight({"east": 8, "west": 8})
    work = make_workload()
    place = make_placement(work, shares={"east": {"workers": 2}, "west": {"workers": 2}})
    odd = {**make_reservation(place), "spec": {"podSets": ["x"]}}
    fill(sight.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west"))
    for store, raw in ((sight.manager.workloads, work), (sight.manager.placements, place)):
        fill(store, raw)
    fill(sight.members["west"].workloads, odd)
    fill(sight.members["east"].workloads, make_reservation(place))
    found = sight.facts.gang_observer.facts((NAMESPACE, work["metadata"]["name"]), at(9))
    assert [one.cluster for one in found.shares.reservations] == ["east"]
    assert found.clusters.unreachable == {"west": "shows a share of this job that cannot be read"}
    assert found.clusters.lost == {} and sight.fleet.unreachable() == {}
    fill(sight.manager.placements, make_placement(work, shares={"east": {"workers": 2}}))
    found = sight.facts.gang_observer.facts((NAMESPACE, work["metadata"]["name"]), at(9))
    assert [one.cluster for one in found.shares.reservations] == ["east"]
    assert sight.facts.reservations.workers_in("west") == 0


def test_a_cluster_counts_as_lost_from_the_first_loss_on() -> None:
    found = losses(lost_east(0))
    assert found.given_up_clusters(["east", "west"], MINUTE, at(59)) == {}
    late = found.given_up_clusters(["east", "west"], MINUTE, at(60))
    assert late.keys() == {"east"} and "is unreachable since" in late["east"]
    silence = found.silence_of_pod("east", make_pod(), MINUTE)
    assert silence and (silence.lost_since, silence.given_up_at, silence.ray_node_alive) == (at(0), at(60), None)
    assert found.silence_of_pod("west", make_pod(), MINUTE) is None


def test_no_worker_is_given_up_before_ray_was_asked() -> None:
    """A controller that has just started knows nothing of what an earlier one heard."""
    found = ClusterLosses(*(lambda sight: (sight.manager, sight.fleet))(lost_east(0)))
    silence = found.silence_of_pod("east", make_pod(), MINUTE)
    assert silence and (silence.lost_since, silence.given_up_at) == (at(0), None)


def test_no_worker_is_given_up_while_a_cluster_is_syncing() -> None:
    """The cluster may have been reachable while no process observed it."""
    sight = lost_east(0)
    sight.members["east"]._note_error("probe", Syncing(FIRST_LISTS))
    assert losses(sight).given_up_clusters(["east"], MINUTE, at(9999)) == {}


def test_no_worker_is_given_up_before_the_loss_is_recorded() -> None:
    found = losses(lost_east(None))
    assert found.given_up_clusters(["east"], MINUTE, at(9999)) == {}
    silence = found.silence_of_pod("east", make_pod(), MINUTE)
    assert silence and silence.given_up_at is None


def test_an_unregistered_cluster_is_lost_at_once() -> None:
    found = losses(lost_east(0))
    assert found.given_up_clusters(["north"], MINUTE, at(0)) == {
        "north": "the worker cluster is not registered any more"
    }


def test_the_workers_to_drain_are_computed_from_the_stores() -> None:
    """Pods, remote pods, held slots and the RayCluster's replicas; gang/drain_order.py has the rules."""
    sight = Sight({"east": 8, "west": 8})
    east = sight.members["east"]
    east.spec = specs.parse_worker_cluster(make_worker_cluster("east", draining=True, maxUnavailable=1))
    groups = [{"groupName": "workers", "replicas": 3}]
    pods = [pod("a", "east/1/role-workers/0"), pod("b", "east/1/role-workers/1"), pod("c", "west/1/role-workers/0")]
    fill(sight.manager.ray_clusters, {**make_ray_cluster(), "spec": {"workerGroupSpecs": groups}})
    fill(sight.manager.pods, *pods)
    fill(east.pods, *map(make_copy, pods[:2]))
    fill(sight.members["west"].pods, make_copy(pods[2]))
    slots = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    standing = [parse_reservation(cluster, make_reservation(PLACE)) for cluster in ("east", "west")]
    assert [facts.key_of(copy)[1] for _, copy in slots.pods_to_move(parse_placement(PLACE), standing)] == ["a"]
    waits = parse_reservation("west", make_reservation(PLACE, admitted=False))
    for without in (standing[:1], [standing[0], waits], [standing[0], replace(standing[1], placement="another")]):
        assert slots.pods_to_move(parse_placement(PLACE), without) == (), "west holds no quota for it"
    fill(sight.members["west"].pods)
    assert slots.pods_to_move(parse_placement(PLACE), standing) == (), "one has lost its copy there"
    fill(sight.members["west"].pods, make_copy(pods[2]))
    fill(
        sight.manager.ray_clusters, {**make_ray_cluster(), "spec": {"workerGroupSpecs": [{**groups[0], "replicas": 4}]}}
    )
    assert slots.pods_to_move(parse_placement(PLACE), standing) == (), "KubeRay has yet to make one"


def test_unready_workers_are_collected_with_the_heads_ready_time() -> None:
    """While all are ready nothing is; the rest is said in gang/start_timeout.py."""
    sight = Sight({"east": 8, "west": 8})
    ready, starts = pod("a", "east/1/role-workers/0"), make_pod("b", placement=NAME, slot="east/1/role-workers/1")
    fill(
        sight.manager.ray_clusters,
        {**make_ray_cluster(), "spec": {"workerGroupSpecs": [{"groupName": "workers", "replicas": 1}]}},
    )
    fill(sight.manager.pods, ready)
    slots, standing = (
        SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory),
        [parse_reservation("east", make_reservation(PLACE))],
    )
    assert slots.unready_workers(parse_placement(PLACE), standing) is None
    fill(sight.manager.pods, ready, starts)
    fill(sight.members["east"].pods, make_copy(starts))
    found = slots.unready_workers(parse_placement(PLACE), standing)
    assert found
    assert [facts.key_of(copy)[1] for copy in found.remote_pods.values()] == ["b"]
    assert (found.admitted_shares, found.desired_workers, found.head_ready_since) == ({("east", 1)}, 1, None)
    owner = starts["metadata"]["ownerReferences"]
    labels = {names.RAY_GCS_CLUSTER_LABEL: "train-abc", names.RAY_NODE_TYPE_LABEL: names.HEAD}
    head = {"metadata": make_meta("head", labels=labels, ownerReferences=owner), "status": {"podIP": "10.0.0.1"}}
    head["status"]["conditions"] = [make_condition("Ready", since=9)]
    fill(sight.manager.heads, head)
    found = slots.unready_workers(parse_placement(PLACE), standing)
    assert found
    assert found.head_ready_since == at(9)
    fill(sight.manager.pods)
    gone = slots.unready_workers(parse_placement(PLACE), standing)
    assert gone is None, "nobody is there, so nobody starts"


def test_workers_are_collected_while_kueue_counts_unready_pods() -> None:
    """A worker of a RayService works without a replica, and is not ready then."""
    sight = Sight({"east": 8})
    fill(
        sight.manager.ray_clusters,
        {**make_ray_cluster(), "spec": {"workerGroupSpecs": [{"groupName": "workers", "replicas": 1}]}},
    )
    fill(sight.manager.pods, pod("a", "east/1/role-workers/0"))
    slots = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    share = parse_reservation("east", make_reservation(PLACE))
    assert slots.unready_workers(parse_placement(PLACE), [share]) is None
    counting = replace(share, pods_unready_since=at(0))
    workers = slots.unready_workers(parse_placement(PLACE), [counting])
    assert workers and len(workers.pods) == 1
    assert slots.unready_workers(parse_placement(PLACE), [replace(counting, placement="another")]) is None


def pod(name: str, slot: str) -> Raw:
    made = make_pod(name, placement=NAME, slot=slot, dispatched=True)
    made["status"]["conditions"].append(make_condition("Ready"))
    return made


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, "Replace"),
        ({"gang": "SameCluster"}, "Restart"),
        ({"gang": "BestEffort", "minWorkers": 1}, "Replace"),
        ({"gang": "SameCluster", "onShareLost": "Replace"}, "Replace"),
        ({"onShareLost": "Restart"}, "Restart"),
    ],
)
def test_what_a_policy_does_when_a_share_is_lost(spec: Raw, want: str) -> None:
    assert parse_dispatch_policy(make_policy(**spec)).share_lost_action == want


@pytest.mark.parametrize(
    ("spec", "restarts"), [({}, False), ({"gang": "SameCluster"}, True), ({"onShareLost": "Restart"}, True)]
)
def test_the_facts_of_a_worker_include_its_gangs_restart_policy(spec: Raw, restarts: bool) -> None:
    sight = Sight({"east": 8}, **spec)
    work = make_workload(check=names.CHECK_READY)
    pod = make_pod(placement=NAME, slot="east/1/role-workers/0")
    fill(sight.manager.workloads, work)
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, pod)
    assert sight.facts.worker_observer.facts(facts.key_of(pod)).owner.restarts_on_share_loss is restarts


def test_the_facts_of_a_gang_include_starting_workers_and_their_timeout() -> None:
    sight = Sight({"east": 8}, workerStartTimeout="2m", gang="SameCluster")
    work = make_workload(check=names.CHECK_READY)
    fill(sight.manager.workloads, work)
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, make_pod(placement=NAME, slot="east/1/role-workers/0"))
    found = sight.facts.gang_observer.facts(facts.key_of(work), at(0))
    assert found.pods.workers
    assert len(found.pods.workers.pods) == 1
    assert (found.policy.start_timeout, found.policy.same_cluster) == (2 * MINUTE, True)
