"""A worker cluster is recognised by its identity and its claim: a kubeconfig that leads elsewhere loses and doubles
nothing.

Real Kueue and KubeRay; workers on fake nodes. The lab's clusters are each other's wrong ones.
"""

import asyncio
import base64
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from adapter import names
from adapter.admission import cluster_claim
from adapter.admission.cluster_claim import Leadership
from adapter.admission.cluster_identity import IdentityRecord
from adapter.objects.placement import PlacementState
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.identity import ConnectionIdentity
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.kube.resources import CONFIG_MAPS
from hack.testbed import install
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, told
from hack.testbed.workerclusters import meant, uid

pytestmark = pytest.mark.alone  # Secrets of all are exchanged

OWN = "it-identity"  # a WorkerCluster of the test's own, and its Secret
Lead = Callable[[str, str], None]  # a Secret, and the cluster to which it is to lead


@pytest.fixture
def lead(fleet: Clusters, running: Controller) -> Iterator[Lead]:
    """Have a Secret lead to a cluster; in the end all are as they were."""
    kubeconfigs = {name: install.worker_kubeconfig(fleet.manager, name) for name in ("east", "west")}

    def put(secret: str, cluster: str) -> None:
        data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfigs[cluster].encode()).decode()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": names.SYSTEM_NAMESPACE}}
        how = ("--server-side", "--force-conflicts", "--field-manager=rayspan-test", "-f", "-")
        fleet.manager.kubectl("apply", *how, input=json.dumps({**body, "data": data}))

    yield put
    put("east", "east")
    fleet.manager.delete("secret", OWN, names.SYSTEM_NAMESPACE)
    wait(lambda: _connected(fleet.manager, "east").get("status") == "True", 45, "east is as it was", running.tail)


@pytest.mark.long  # the short tier's faults swap kubeconfigs, too
def test_a_secret_that_leads_elsewhere_loses_nothing(stage: Stage, running: Controller, lead: Lead) -> None:
    """West's kubeconfig comes into east's Secret while a gang runs in both, and goes again."""
    manager, workers = stage.manager, stage.fleet.workers
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run", lambda: dump(stage, running))
    before, place = _all(stage), stage.placement("pi")["spec"]
    assert stage.where("pi") == "2 east, 1 west"
    assert manager.get("workerclusters", "east")["status"]["clusterUID"] == uid(workers["east"])

    lead("east", "west")
    wait(
        lambda: _connected(manager, "east").get("reason") == names.ConditionReason.IDENTITY_MISMATCH,
        45,
        "it is noticed",
        running.tail,
    )
    said = _connected(manager, "east")
    assert said["status"] == "False" and uid(workers["west"]) in said["message"]
    assert f"{names.ACCEPT_CLUSTER_ANNOTATION}={uid(workers['west'])}" in said["message"]
    wait(
        lambda: names.ConditionReason.IDENTITY_MISMATCH in told(manager, "workerclusters", "east"),
        20,
        "an event says so",
        running.tail,
    )
    wait(
        lambda: stage.state("pi") == PlacementState.UNKNOWN, 30, "nothing is known of two", lambda: dump(stage, running)
    )
    stage.ray_cluster("next", workers=1)  # who comes meanwhile goes where something is seen
    wait(lambda: stage.running(4), 60, "another job runs", lambda: dump(stage, running))
    assert stage.where("next") == "1 west"
    assert before <= _all(stage), "what ran in either cluster runs on"
    assert stage.placement("pi")["spec"]["shares"] == place["shares"]

    lead("east", "east")
    wait(lambda: _connected(manager, "east").get("status") == "True", 45, "it is seen again", running.tail)
    wait(lambda: stage.where("pi") == "2 east, 1 west", 30, "all is known", lambda: dump(stage, running))
    assert before <= _all(stage) and len(_all(stage)) == 4, "nothing was doubled"
    assert stage.running(4)
    for job in ("pi", "next"):
        manager.delete("raycluster", job, stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left in any cluster", lambda: str(stage.leftovers()))


@pytest.mark.long
def test_a_cluster_that_stands_in_anothers_place_is_accepted_by_its_uid(
    stage: Stage, running: Controller, lead: Lead
) -> None:
    """What ran in the first one counts as gone then, and not before."""
    manager, workers = stage.manager, stage.fleet.workers
    lead(OWN, "east")
    _register(stage, meant(workers["east"]))
    stage.build({"east": 1, "west": 1}, policy={"clusters": {"names": [OWN]}})
    wait(lambda: _connected(manager, OWN).get("status") == "True", 45, "it is connected", running.tail)
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "the worker runs in east", lambda: dump(stage, running))
    (first,) = stage.workers()

    lead(OWN, "west")
    wait(
        lambda: _connected(manager, OWN).get("reason") == names.ConditionReason.IDENTITY_MISMATCH,
        45,
        "it is noticed",
        running.tail,
    )
    _accept(manager, "no-such-uid")
    assert stage.workers()[0]["metadata"]["uid"] == first["metadata"]["uid"]

    _accept(manager, uid(workers["west"]))
    wait(lambda: _connected(manager, OWN).get("status") == "True", 45, "it is accepted", running.tail)
    wait(lambda: _recorded(manager) == uid(workers["west"]), 10, "and on record", running.tail)
    wait(
        lambda: len(stage.remote()["west"]) == 1 and stage.running(1),
        90,
        "the worker runs in west",
        lambda: dump(stage, running),
    )
    assert stage.workers()[0]["metadata"]["uid"] != first["metadata"]["uid"]
    assert [pod["metadata"]["name"] for pod in stage.remote()["east"]] == [first["metadata"]["name"]], (
        "nobody speaks to the first one any more"
    )


@pytest.mark.long  # cheaper: tests/unit/admission/test_cluster_identity.py
def test_one_cluster_is_not_registered_twice_by_mistake(stage: Stage, running: Controller, lead: Lead) -> None:
    manager, east = stage.manager, stage.fleet.workers["east"]
    lead(OWN, "east")
    _register(stage, {})
    wait(
        lambda: _connected(manager, OWN).get("reason") == names.ConditionReason.DUPLICATE_CLUSTER,
        45,
        "it is noticed",
        running.tail,
    )
    said = _connected(manager, OWN)
    assert said["status"] == "False" and "it is the cluster of WorkerCluster east" in said["message"]
    assert not _recorded(manager) and _connected(manager, "east")["status"] == "True"
    _accept(manager, uid(east))
    wait(lambda: _connected(manager, OWN).get("status") == "True", 45, "it is meant", running.tail)


def _register(stage: Stage, annotations: Raw, secret: str = OWN) -> None:
    body = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND}
    metadata = {"name": OWN, "annotations": annotations}
    stage.manager.apply(
        yaml.safe_dump(
            {**body, "metadata": metadata, "spec": {"source": {"kubeConfig": {"secretRef": {"name": secret}}}}}
        )
    )
    stage.made.append((stage.manager, f"workercluster.{names.DOMAIN}", OWN))


def _accept(manager: Cluster, found: str) -> None:
    manager.kubectl("annotate", "workercluster", OWN, "--overwrite", f"{names.ACCEPT_CLUSTER_ANNOTATION}={found}")


def _connected(manager: Cluster, name: str) -> Raw:
    return condition(manager.get("workerclusters", name), names.CONNECTED)


def _recorded(manager: Cluster) -> str:
    return str((manager.get("workerclusters", OWN).get("status") or {}).get("clusterUID") or "")


def _all(stage: Stage) -> set[str]:
    """The uids of all copies, wherever they are."""
    return {pod["metadata"]["uid"] for pods in stage.remote().values() for pod in pods}


# --- whose it is ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(
    standing: Controller, parked: Clusters, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Controller, Controller]]:
    """Two processes of one manager that take part in its election, as the shipped ones do; neither runs yet."""
    standing.stop()
    pace = request.config.getoption("--pace")
    folders = (tmp_path / "first", tmp_path / "second")
    for folder in folders:
        folder.mkdir()
    first, second = (Controller(parked.manager, f, pace=pace, elect=True, number=n) for n, f in enumerate(folders))
    yield first, second
    for one in (second, first):
        one.stop(signal.SIGTERM)  # the Lease is given back: whoever comes next need not wait


@pytest.mark.long  # that another one takes over: tests/integration/faults/test_leader.py
def test_who_leads_next_writes_at_once(stage: Stage, pair: tuple[Controller, Controller]) -> None:
    """The claims of a killed leader are inherited, because they name no process that the manager's Lease does not know.

    The claim of a deleted WorkerCluster is given back, so that the next registration of that cluster need not wait.
    """
    first, second = pair
    east, west = _started(stage, first), stage.fleet.workers["west"]
    before = _claim(stage, east)
    assert before["metadata"]["annotations"][names.LEASE_VERSION_ANNOTATION].isdecimal()
    second.start()
    wait(lambda: "standing by" in second.tail(), 60, "the second one stands by", second.tail)
    first.stop()
    wait(lambda: "leading; deciding" in second.log.read_text(), 20, "the second one leads", second.tail)
    wait(lambda: _holder(_claim(stage, east)) == _leader(stage), 5, "and holds the claim", second.tail)
    assert _holder(_claim(stage, east)) != _holder(before)
    stage.ray_cluster("next", workers=1)
    wait(lambda: stage.running(2), 30, "a new worker runs", second.tail)

    _register(stage, meant(west), secret="west")
    own = cluster_claim.lease_name(_manager_id(stage), OWN)
    wait(lambda: _holder(_lease(west, own)) == _leader(stage), 30, "it claims what is registered", second.tail)
    stage.manager.delete("workercluster", OWN)
    wait(lambda: _holder(_lease(west, own)) == "", 30, "and gives it back", second.tail)
    assert _connected(stage.manager, "west")["status"] == "True"


@pytest.mark.long  # cheaper: tests/unit/shell/clusters/test_claim_holder.py
def test_a_clone_of_the_manager_writes_nothing(stage: Stage, pair: tuple[Controller, Controller]) -> None:
    """A clone knows from a backup who led then: it may not write while that process lives, and not at once when it
    is dead."""
    first, _ = pair
    east = _started(stage, first)
    clone = Leadership("clone_1", _leader(stage), 1, 2)
    refused = asyncio.run(_as_clone(stage, clone, seconds=15))
    assert "does not hold the claim to worker cluster east" in refused
    assert _holder(_claim(stage, east)) == _leader(stage)
    first.stop()
    assert "does not hold the claim" in asyncio.run(_as_clone(stage, clone, seconds=15))
    assert _holder(_claim(stage, east)) == _leader(stage), "whoever led last leads on paper"


@pytest.mark.long  # cheaper: tests/unit/admission/test_cluster_claim.py
def test_a_claim_that_somebody_else_holds_is_told_of_and_taken_over_on_demand(
    stage: Stage, pair: tuple[Controller, Controller]
) -> None:
    first, _ = pair
    manager, east = stage.manager, _started(stage, first)
    uids = {pod["metadata"]["uid"] for pod in stage.remote()["east"]}
    name = _claim(stage, east)["metadata"]["name"]
    thief = json.dumps({"spec": {"holderIdentity": "thief_1"}})
    east.kubectl("-n", names.SYSTEM_NAMESPACE, "patch", "lease", name, "--type=merge", "-p", thief)
    wait(
        lambda: _connected(manager, "east").get("reason") == names.ConditionReason.CLAIM_CONFLICT,
        30,
        "it is noticed",
        first.tail,
    )
    said = _connected(manager, "east")
    assert said["status"] == "False" and f"{names.TAKE_OVER_ANNOTATION}=thief_1" in said["message"]
    stage.ray_cluster("next", workers=1)
    wait(lambda: stage.where("next") == "1 west", 60, "who comes meanwhile goes to west", lambda: dump(stage, first))
    assert {pod["metadata"]["uid"] for pod in stage.remote()["east"]} == uids

    taken = ("annotate", "workercluster", "east", "--overwrite", f"{names.TAKE_OVER_ANNOTATION}=thief_1")
    manager.kubectl(*taken)
    try:
        # Who takes it waits for as long as a request of the other one may still be on its way.
        patience = cluster_claim.HANDED_OVER_SECONDS + 30
        wait(lambda: _connected(manager, "east").get("status") == "True", patience, "it is taken over", first.tail)
        assert _holder(_claim(stage, east)) == _leader(stage)
        manager.delete("raycluster", "pi", stage.name, wait=False)
        wait(lambda: not stage.remote()["east"], patience, "and written to", first.tail)
    finally:
        manager.kubectl("annotate", "workercluster", "east", f"{names.TAKE_OVER_ANNOTATION}-")


def _started(stage: Stage, first: Controller) -> Cluster:
    """Have the first one lead, and a gang run in east; returns east."""
    first.start()
    wait(lambda: "leading; deciding" in first.log.read_text(), 60, "the first one leads", first.tail)
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "a worker runs", first.tail)
    assert stage.where("pi") == "1 east"
    return stage.fleet.workers["east"]


def _claim(stage: Stage, east: Cluster) -> Raw:
    return _lease(east, cluster_claim.lease_name(_manager_id(stage), "east"))


def _lease(cluster: Cluster, name: str) -> Raw:
    return cluster.get("leases", name, names.SYSTEM_NAMESPACE)


def _manager_id(stage: Stage) -> str:
    found: str = stage.remote("workloads")["east"][0]["metadata"]["labels"][names.MANAGER_LABEL]
    return found


def _holder(lease: Raw) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _leader(stage: Stage) -> str:
    return _holder(stage.manager.get("leases", names.LEASE, names.SYSTEM_NAMESPACE))


class _Elected:
    """A process that leads another manager of the same identity."""

    def __init__(self, lead: Leadership) -> None:
        self.leading, self._lead = asyncio.Event(), lead
        self.leading.set()

    def leadership(self) -> Leadership:
        return self._lead


async def _as_clone(stage: Stage, lead: Leadership, seconds: float) -> str:
    """Try for so long to hold the claim to east, as a clone of the manager would; returns why a write is finally not
    sent."""
    kubeconfig = install.worker_kubeconfig(stage.manager, "east")
    identity = ConnectionIdentity(IdentityRecord("east", uid(stage.fleet.workers["east"])))
    own, client = [await Client.from_kubeconfig(kubeconfig) for _ in range(2)]
    told: list[object] = []
    made = ClaimHolder(own, _manager_id(stage), identity, _Elected(lead), lambda *said: told.append(said))
    client.write_guard = made.fence_reason
    try:
        identity.verify_uid(await own.cluster_uid())
        await _looks(made, seconds)
        assert told, "it has looked"
        with pytest.raises(Unreachable) as refused:
            await client.create(CONFIG_MAPS.path(stage.name), {"metadata": {"name": "of-a-clone"}})
        return str(refused.value)
    finally:
        await own.close()
        await client.close()


async def _looks(made: ClaimHolder, seconds: float) -> None:
    """Let it observe for so long, as it does when it runs. No request is cancelled: its connection would outlive the
    loop."""
    ends, pause = asyncio.get_running_loop().time() + seconds, 0.0
    while asyncio.get_running_loop().time() + pause < ends:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), pause)
        pause = await made.acquire_or_renew()
