"""A gang whose policy has a relayed cluster: what its workers request, and what its head is started with."""

from typing import Any

import pytest

from adapter import names
from adapter.gang.reserve import podset_locks
from adapter.objects import specs
from adapter.objects.rayjob import read_ray_job
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import Workload
from adapter.relay.relay_keys import fingerprint_of, read_key
from adapter.relay.relay_network import identity_of, podset_update, with_key
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from tests.unit import builders
from tests.unit.builders import make_workload
from tests.unit.shell.planning.test_preview_of_jobs import asked
from tests.unit.stores import Sight, fill, make_ray_job, make_template

NETWORK = {"mode": "Relay", "address": "relay.example.com:30443", "image": "relay:1"}
IDENTITY = identity_of("uid-of-rayjob-train")
ALLOCATABLE = {"cpu": "999", "memory": "64Gi", "pods": "999"}
RECORDED = [podset_update(IDENTITY)]
KEY = builders.make_relay_key()
OTHER_KEY = builders.make_relay_key(b"o")


def _sight(updates: list[Raw] | None = None, network: Raw | None = NETWORK) -> tuple[Sight, Workload]:
    """East is relayed and west is flat. `updates`: those of a gang that runs; None: it waits."""
    sight = Sight({"east": 8, "west": 8})
    east = builders.make_worker_cluster("east", network=network or {})
    fill(sight.manager.worker_clusters, east, builders.make_worker_cluster("west"))
    sight.members["east"].spec = specs.parse_worker_cluster(east)
    raw: Any = make_workload(groups={"workers": 2}, check=names.CHECK_PENDING if updates is None else names.CHECK_READY)
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template("1")
    if updates is not None:
        raw["status"]["admissionChecks"][0]["podSetUpdates"] = updates
    fill(sight.manager.workloads, raw)
    return sight, sight.manager.read_workload(raw)


def _requested_cpu(sight: Sight, workload: Workload) -> int:
    check = sight.facts.policies.check_of(workload)
    (group,) = sight.planning._snapshot.request_of(workload, check).groups
    return group.request["cpu"]


@pytest.mark.parametrize(
    ("updates", "network", "cpu"),
    [
        pytest.param(None, NETWORK, 1050, id="it waits, and a cluster is relayed"),
        pytest.param(None, None, 1000, id="it waits, and all clusters are flat"),
        pytest.param(RECORDED, None, 1050, id="its head has the relay, and no cluster is relayed any more"),
        pytest.param([], NETWORK, 1000, id="its head was started without the relay"),
    ],
)
def test_the_sidecar_counts_for_workers_of_a_gang_with_the_relay(
    updates: list[Raw] | None, network: Raw | None, cpu: int
) -> None:
    sight, workload = _sight(updates, network)
    assert _requested_cpu(sight, workload) == cpu
    twice = sight.facts.policies.with_relay(sight.facts.policies.with_relay(workload, builders.CHECK), builders.CHECK)
    assert _requested_cpu(sight, twice) == cpu, "it counts once"


@pytest.mark.parametrize("network", [NETWORK, None], ids=["relayed", "flat"])
def test_the_check_labels_the_head_of_a_gang_with_the_relay(network: Raw | None) -> None:
    sight, workload = _sight(network=network)
    gang = sight.facts.gang_observer.facts((workload.namespace, workload.name), builders.START)
    labelled = [update for update in podset_locks(gang, "placement") if update["name"] == names.HEAD]
    assert labelled == ([podset_update(IDENTITY)] if network else [])


@pytest.mark.parametrize(("updates", "open_clusters"), [(RECORDED, ["east", "west"]), ([], ["west"])])
def test_a_running_gang_goes_to_a_relayed_cluster_only_with_the_relay(
    updates: list[Raw], open_clusters: list[str]
) -> None:
    sight, workload = _sight(updates)
    chosen, _ = sight.facts.policies.policy_of(builders.CHECK)
    assert chosen
    request = sight.planning._snapshot.request_of(workload, builders.CHECK, chosen.policy)
    plan_request = sight.planning._snapshot.plan_request(request, chosen, [])
    assert [name for name in plan_request.clusters if name not in plan_request.unproven_clusters] == open_clusters
    assert all("start the job again" in reason for reason in plan_request.unproven_clusters.values())


@pytest.mark.parametrize(("secret", "is_open"), [(KEY, True), (OTHER_KEY, False), (None, False)])
def test_a_running_gang_whose_head_has_another_key_goes_nowhere(secret: Raw | None, is_open: bool) -> None:
    """So it reserves nothing for workers that its head would refuse."""
    sight, workload = _sight([dict(update) for update in with_key(RECORDED, fingerprint_of(read_key(KEY)))])
    fill(sight.manager.secrets, *([secret] if secret else []))
    chosen, _ = sight.facts.policies.policy_of(builders.CHECK)
    assert chosen
    request = sight.planning._snapshot.request_of(workload, builders.CHECK, chosen.policy)
    closed = sight.planning._snapshot.plan_request(request, chosen, []).unproven_clusters
    assert [*closed] == ([] if is_open else ["east", "west"])
    assert all("start the job again" in reason for reason in closed.values())


def test_a_key_that_is_deleted_for_a_moment_closes_no_cluster() -> None:
    """The controller writes it again within seconds."""
    sight, workload = _sight([dict(update) for update in with_key(RECORDED, fingerprint_of(read_key(KEY)))])
    for secrets in ([KEY], []):
        fill(sight.manager.secrets, *secrets)
        assert not sight.facts.policies.relay_key_problem(workload, builders.CHECK)


def _cover_memory(member: WorkerClusterCache, cores: int) -> None:
    """Let the queue and the node hold what the sidecars request."""
    queue = builders.make_cluster_queue(cores)
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append("memory")
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "64Gi"})
    fill(member.cluster_queues, queue)
    (node,) = list(member._node_objects)
    fill(member._node_objects, {**node, "status": {**node["status"], "allocatable": ALLOCATABLE}})


@pytest.mark.parametrize(
    ("quota", "has_note"),
    [
        pytest.param({"east": 8, "west": 0, "south": 0}, False, id="all workers in the relayed cluster"),
        pytest.param({"east": 0, "west": 8, "south": 0}, False, id="all workers in one flat cluster"),
        pytest.param({"east": 3, "west": 3, "south": 0}, True, id="workers in a relayed and in a flat cluster"),
        pytest.param({"east": 0, "west": 3, "south": 3}, True, id="workers in two flat clusters"),
    ],
)
def test_plan_names_what_does_not_pass_the_relay(quota: dict[str, int], has_note: bool) -> None:
    sight = Sight(quota)
    east = builders.make_worker_cluster("east", network=NETWORK)
    fill(sight.manager.worker_clusters, east, *map(builders.make_worker_cluster, ("west", "south")))
    sight.members["east"].spec = specs.parse_worker_cluster(east)
    for name, member in sight.members.items():
        _cover_memory(member, quota[name])
    plan = asked(sight, make_ray_job())
    assert plan["fits"]
    assert [note for note in plan["notes"] if "through the relay" in note] == plan["notes"][: int(has_note)]
    assert not has_note or "torch.distributed" in plan["notes"][0]


def test_a_job_that_does_not_work_through_the_relay_goes_to_flat_clusters() -> None:
    sight = Sight({"east": 8, "west": 8})
    east = builders.make_worker_cluster("east", network=NETWORK)
    fill(sight.manager.worker_clusters, east, builders.make_worker_cluster("west"))
    sight.members["east"].spec = specs.parse_worker_cluster(east)
    job = make_ray_job()
    job["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    plan = asked(sight, job)
    assert plan["groups"][0]["request"] == {"cpu": "1"}, "without the sidecar"
    assert plan["sentence"] == (
        "4 of 4 workers to west; east passed over: it is reached through the relay, and version 1 of Ray's autoscaler "
        "knows workers by their IPs, not by names; set spec.rayClusterSpec.autoscalerOptions.version to v2."
    )


def test_a_running_job_hears_why_it_uses_no_relayed_cluster() -> None:
    sight, workload = _sight(updates=[])
    policies, job = sight.facts.policies, read_ray_job({"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": True}}})
    assert "version 1 of Ray's autoscaler" in policies.relay_problem(workload, builders.CHECK, job)
    assert policies.relay_problem(workload, builders.CHECK) == (
        "it is reached through the relay, and the job's head was started without it; start the job again to use it"
    )


def test_a_flat_policy_knows_no_relay() -> None:
    sight, workload = _sight(updates=[], network=None)
    assert sight.facts.policies.relay_problem(workload, builders.CHECK) == ""
