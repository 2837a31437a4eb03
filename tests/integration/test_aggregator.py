"""The manager's remote quota follows the worker queues if an annotation asks for it, and nothing else of the queue
changes."""

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from hack.testbed import install
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, added, told
from hack.testbed.workerclusters import meant

pytestmark = [pytest.mark.alone, pytest.mark.long]  # it reads the quota of all queues of west

WEST = "it-sum-west"  # a WorkerCluster of the test's own, so that it may be lost


@pytest.fixture
def west(fleet: Clusters) -> Iterator[str]:
    """West under another name, by a Secret of the test's own."""
    manager = fleet.manager
    _reach(fleet, install.worker_kubeconfig(manager, "west"))
    metadata = {"name": WEST, "annotations": meant(fleet.workers["west"])}
    body = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": metadata}
    manager.apply(yaml.safe_dump({**body, "spec": {"source": {"kubeConfig": {"secretRef": {"name": WEST}}}}}))
    yield WEST
    manager.kubectl("delete", "workercluster", WEST, "--ignore-not-found")
    manager.delete("secret", WEST, names.SYSTEM_NAMESPACE)


def test_quota_follows_the_worker_queues(stage: Stage, west: str, running: Controller) -> None:
    """Not before it was asked for, not without the right, then up and down, but never down for want of sight."""
    stage.clusters = ("east", west)
    stage.build({"east": 3, "west": 2})
    manager = stage.manager
    _annotate(stage, "true")
    wait(
        lambda: "has 0 onFlavors there" in _told(stage, "FailedQuotaAggregation"),
        30,
        "heads need a flavor",
        running.tail,
    )
    assert _remote(stage) == "100"

    _two_flavors(stage)
    lacking = "apply kustomize/components/quota-aggregator"
    wait(lambda: lacking in _told(stage, "FailedQuotaAggregation"), 30, "it has no right to it", running.tail)
    before = _without_remote(manager.get("clusterqueues", stage.name)["spec"], stage.name)
    with added(manager, "quota-aggregator"):
        stage.set_quota(stage.fleet.workers["west"], 4)  # the resync would look again, too, within a minute
        wait(lambda: _remote(stage) == "7", 30, "three and four", running.tail)
        assert _without_remote(manager.get("clusterqueues", stage.name)["spec"], stage.name) == before
        # From 5, where it had the right before it saw the worker's quota.
        told_by = [f"cpu in flavor {stage.name} from {was} to 7 (east 3, {west} 4)" for was in (5, 100)]
        wait(lambda: any(map(_told(stage, "QuotaAggregated").__contains__, told_by)), 10, "it is told", running.tail)
        stage.set_quota(stage.fleet.workers["west"], 2)
        wait(lambda: _remote(stage) == "5", 30, "less in west", running.tail)

        _reach(stage.fleet, _elsewhere(install.worker_kubeconfig(manager, "west")))
        wait(lambda: _connected(stage).get("status") == "Unknown", 60, "west is unreachable", running.tail)
        stage.set_quota(stage.fleet.workers["east"], 1)
        stage.set_quota(stage.fleet.workers["east"], 9)
        wait(lambda: _remote(stage) == "9", 30, "more in east is more", running.tail)
        said = "from 5 to 9 (east 9)"
        told_so = "less in east was not less while west was unknown"
        wait(lambda: said in _told(stage, "QuotaAggregated"), 10, told_so, running.tail)

        _reach(stage.fleet, install.worker_kubeconfig(manager, "west"))
        wait(lambda: _remote(stage) == "11", 60, "west is counted again", running.tail)

        _lend(stage, "10")
        stage.set_quota(stage.fleet.workers["west"], 0)
        said = "must be less than or equal to the nominalQuota"
        wait(lambda: said in _told(stage, "FailedQuotaAggregation"), 30, "Kueue refuses, and is quoted", running.tail)
        assert _told(stage, "FailedQuotaAggregation").endswith("; change the ClusterQueue.") and _remote(stage) == "11"
        _annotate(stage, "yes")
        wait(
            lambda: 'is "yes"; set it to' in _told(stage, "FailedQuotaAggregation"),
            30,
            "another word is told",
            running.tail,
        )


def test_killed_right_after_its_write(stage: Stage, process: Controller) -> None:
    """What was written stands, and is not written again; what changes later is followed as ever."""
    stage.build({"east": 3, "west": 2})
    _two_flavors(stage)
    with added(stage.manager, "quota-aggregator"):
        process.start(die_after=("Aggregate", 1, stage.name))
        _annotate(stage, "true")
        process.wait_for_death()
        assert _remote(stage) == "5"
        written = _generation(stage)
        process.start()
        stage.set_quota(stage.fleet.workers["west"], 4)
        wait(lambda: _remote(stage) == "7", 30, "more in west", process.tail)
        assert _generation(stage) == written + 1


def _generation(stage: Stage) -> int:
    """How often the spec of the manager's queue was changed."""
    return int(stage.manager.get("clusterqueues", stage.name)["metadata"]["generation"])


def _annotate(stage: Stage, said: str) -> None:
    word = f"{names.QUOTA_ANNOTATION}={said}"
    stage.manager.kubectl("annotate", "clusterqueue", stage.name, word, "--overwrite")


def _two_flavors(stage: Stage) -> None:
    """Heads in a flavor of their own, workers in the one that the check is limited to."""
    spec: Raw = {"nodeLabels": {"it": "local"}}
    local = stage.add(stage.manager, "ResourceFlavor", {"spec": spec}, f"{stage.name}-local")
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": amount}]}
        for name, amount in ((local, "10"), (stage.name, "100"))
    ]
    spec = {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": stage.name, "onFlavors": [stage.name]}]},
    }
    patch = json.dumps({"spec": spec})
    stage.manager.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", patch)


def _lend(stage: Stage, limit: str) -> None:
    """Promise others no more than that: Kueue wants at least as much quota."""
    there = "/spec/resourceGroups/0/flavors/1/resources/0/lendingLimit"
    patch = [
        {"op": "add", "path": "/spec/cohortName", "value": stage.name},
        {"op": "add", "path": there, "value": limit},
    ]
    stage.manager.kubectl("patch", "clusterqueue", stage.name, "--type=json", "-p", json.dumps(patch))


def _reach(fleet: Clusters, kubeconfig: str) -> None:
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    metadata = {"name": WEST, "namespace": names.SYSTEM_NAMESPACE}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    how = ("--server-side", "--force-conflicts", "--field-manager=rayspan-test", "-f", "-")
    fleet.manager.kubectl("apply", *how, input=json.dumps(body))


def _elsewhere(kubeconfig: str) -> str:
    """The same, but to an address where nothing answers."""
    config = yaml.safe_load(kubeconfig)
    config["clusters"][0]["cluster"]["server"] = "https://10.240.0.250:6443"
    return yaml.safe_dump(config)


def _connected(stage: Stage) -> Raw:
    return condition(stage.manager.get("workerclusters", WEST), names.CONNECTED)


def _flavors(spec: Raw) -> list[Raw]:
    return [flavor for group in spec["resourceGroups"] for flavor in group["flavors"]]


def _remote(stage: Stage) -> str:
    spec = stage.manager.get("clusterqueues", stage.name)["spec"]
    (found,) = (flavor for flavor in _flavors(spec) if flavor["name"] == stage.name)
    return str(found["resources"][0]["nominalQuota"])


def _without_remote(spec: Raw, flavor: str) -> Raw:
    """The spec, with the one number left out that may change."""
    for one in _flavors(spec):
        if one["name"] == flavor:
            one["resources"][0]["nominalQuota"] = "any"
    return spec


def _told(stage: Stage, reason: str) -> str:
    return told(stage.manager, "clusterqueues", stage.name).get(reason, "")
