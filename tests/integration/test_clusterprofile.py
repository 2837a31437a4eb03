"""A ClusterProfile and a token make a worker cluster, each obstacle is reported, and a new token needs no restart.

The manager has the cluster inventory API's own CRD meanwhile. The test writes what a cluster manager and an admin
would.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import yaml

from adapter import names
from hack.testbed import inventory, multikueue
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, added, pods_by_cluster, told
from hack.testbed.workerclusters import meant

pytestmark = [pytest.mark.alone, pytest.mark.long]  # a kind comes and goes, and a controller must have begun without it

OURS = "it-profile-east"
BOUND = ("it-profile-first", "it-profile-second")  # the Secrets in east with which the tokens end


@pytest.fixture
def cleanup(stage: Stage) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        for bound in BOUND:
            stack.callback(stage.fleet.workers["east"].delete, "secret", bound, names.SYSTEM_NAMESPACE)
        yield stack


def test_a_profile_and_a_token_make_a_worker_cluster_and_each_obstacle_is_told(
    cleanup: ExitStack, stage: Stage, process: Controller
) -> None:
    """B24: from a manager without the kind to a running gang, and on with another token: one message each, no
    restart."""
    manager, east = stage.manager, stage.fleet.workers["east"]
    stage.clusters = (OURS,)
    stage.build({"east": 2})
    put = partial(inventory.put, manager, OURS, stage.name)
    put_token = partial(inventory.put_token, manager, OURS, names.SYSTEM_NAMESPACE)
    cleanup.callback(manager.delete, "secret", OURS, names.SYSTEM_NAMESPACE)
    process.start()
    _worker_cluster(stage, {"clusterProfileRef": {"name": OURS, "namespace": stage.name}})
    expect = partial(_expect, stage, process.tail)
    expect(f"the controller cannot read ClusterProfile {stage.name}/{OURS} (404")

    cleanup.enter_context(inventory.known(manager))
    expect(f"names ClusterProfile {stage.name}/{OURS}, which does not exist; create it")
    put()
    expect("has no access provider in its status")
    put({"oidc": inventory.address(manager, "east")})
    expect("has the access providers oidc and none called secretreader, and Rayspan runs no program for a login")
    put({names.SECRET_READER: inventory.address(manager, "east", secret="west")})
    expect("asks for the token in Secret west, and a profile may not choose the Secret of another cluster")
    put({names.SECRET_READER: inventory.address(manager, "east", secret=OURS)})
    expect(f"Secret {OURS} in rayspan-system, which must hold the token for ClusterProfile")

    put_token(inventory.token(east, BOUND[0]))
    wait(lambda: _connected(stage).get("status") == "True", 45, "it is connected", process.tail)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)
    assert pods_by_cluster(stage.workers()) == {OURS: 2}
    before = {pod["metadata"]["uid"] for pod in stage.workers()}

    east.delete("secret", BOUND[0], names.SYSTEM_NAMESPACE)
    expect("it does not accept the kubeconfig's token or certificate, which may have ended; renew the Secret")
    put_token(inventory.token(east, BOUND[1]))
    wait(lambda: _connected(stage).get("status") == "True", 45, "another token is taken", process.tail)
    assert stage.running(2) and {pod["metadata"]["uid"] for pod in stage.workers()} == before, "nothing has stopped"

    manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", process.tail)


def test_a_multikueueclusters_profile_is_followed_as_well(
    cleanup: ExitStack, stage: Stage, process: Controller
) -> None:
    """Kueue keeps both in its own namespace, and so do we for it: the profile, and the Secret of the same name."""
    manager, name, namespace = stage.manager, "east", names.KUEUE_NAMESPACE
    stage.clusters = (OURS,)
    stage.build({"east": 1})
    cleanup.enter_context(inventory.known(manager))
    cleanup.callback(manager.delete, "secret", name, namespace)
    cleanup.enter_context(added(manager, "multikueue"))
    body = multikueue.cluster(OURS, "")
    manager.apply(yaml.safe_dump({**body, "spec": {"clusterSource": {"clusterProfileRef": {"name": name}}}}))
    stage.made.append((manager, f"multikueuecluster.{names.KUEUE_DOMAIN}", OURS))
    process.start()
    _worker_cluster(stage, {"multiKueueClusterRef": {"name": OURS}})
    _expect(stage, process.tail, f"names ClusterProfile {namespace}/{name}, which does not exist")

    inventory.put(manager, name, namespace, {names.SECRET_READER: inventory.address(manager, "east", secret=name)})
    inventory.put_token(manager, name, namespace, inventory.token(stage.fleet.workers["east"], BOUND[0]))
    wait(lambda: _connected(stage).get("status") == "True", 45, "it is connected", process.tail)
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "its worker runs", process.tail)
    manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", process.tail)


def _worker_cluster(stage: Stage, source: Raw) -> None:
    metadata = {"name": OURS, "annotations": meant(stage.fleet.workers["east"])}
    body = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": metadata}
    stage.manager.apply(yaml.safe_dump({**body, "spec": {"source": source}}))
    stage.made.append((stage.manager, f"workercluster.{names.DOMAIN}", OURS))


def _connected(stage: Stage) -> Raw:
    return condition(stage.manager.get("workerclusters", OURS), names.CONNECTED)


def _expect(stage: Stage, tail: Callable[[], str], text: str) -> None:
    """Wait until the WorkerCluster's condition says it, and an event as well."""

    def said() -> bool:
        found = _connected(stage)
        return found.get("status") in ("False", "Unknown") and text in str(found.get("message"))

    wait(said, 60, f"the WorkerCluster says: {text}", lambda: f"{_connected(stage)}\n{tail()}")
    events = partial(told, stage.manager, "workerclusters", OURS)
    wait(lambda: any(text in each for each in events().values()), 10, "an event says so, too", lambda: str(events()))
