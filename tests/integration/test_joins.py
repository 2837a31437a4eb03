"""Workers join their head, or a message says why not: Services of the manager, LimitRanges, cordoned nodes.

Real Kueue, KubeRay and API servers. Where a container must run, its worker is on a worker cluster's real node.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import progress
from hack.testbed.clusters import Clusters, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, added, ray_cluster

WAITS = 3


@pytest.fixture
def cordoned(fleet: Clusters) -> Iterator[None]:
    """All nodes of both worker clusters are cordoned."""
    with ExitStack() as stack:
        for cluster in fleet.workers.values():
            stack.callback(cluster.kubectl, "uncordon", "--selector=kubernetes.io/hostname")
            cluster.kubectl("cordon", "--selector=kubernetes.io/hostname")
        yield


def on_real_nodes(stage: Stage, cpu: str = "100m") -> Raw:
    """A RayCluster whose head is on a fake node, where nothing answers, and whose worker is on a real one."""
    made: Raw = ray_cluster("pi", stage.name, {"workers": 1}, cpu)
    spec = made["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    made["spec"]["workerGroupSpecs"][0]["template"]["spec"] = {"containers": spec["containers"]}
    return made


def rayspan(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "adapter", *words]
    return progress.without(subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60, check=False))


def test_a_worker_joins_its_own_head_whatever_service_its_user_names(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1})
    made: Raw = ray_cluster("pi", stage.name, {"workers": 1})
    nodes = f"$(hostname -I).nodes.{stage.name}.svc.cluster.local"
    params = {"address": "my-ray:6379", "node-ip-address": nodes}
    made["spec"]["workerGroupSpecs"][0]["rayStartParams"] = params
    stage.manager.apply(yaml.safe_dump(made))
    wait(lambda: stage.running(1), 90, "its worker runs", lambda: dump(stage, running))
    (pod,) = stage.remote()["east"]
    start = " ".join(pod["spec"]["containers"][0]["args"])
    (head,) = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}=head")
    assert f"--address={head['status']['podIP']}:6379" in start and "--node-ip-address" not in start
    told = stage.told("pi", "RefersToManager")
    assert "rayStartParams.address is my-ray:6379, a Service of the manager" in told
    assert "rayStartParams.node-ip-address is $(hostname -I).nodes." in told


@pytest.mark.long
def test_a_limit_range_that_takes_the_worker_takes_its_init_container(stage: Stage, running: Controller) -> None:
    """KubeRay's init container requests 200m. Below the minimum, the denial names the container."""
    stage.build({"east": 1})
    east = stage.fleet.workers["east"]
    limits = [{"type": "Container", "min": {"cpu": "250m"}}]
    metadata = {"name": "least", "namespace": stage.name}
    made = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}
    east.apply(yaml.safe_dump(made))
    stage.ray_cluster("pi", workers=1, cpu="300m")
    wait(lambda: stage.running(1), 90, "its worker runs", lambda: dump(stage, running))
    (share,) = stage.remote("workloads")["east"]
    usage = share["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
    assert usage == {"cpu": "300m"}, "the raised init container costs no quota"
    stage.ray_cluster("small", workers=1, cpu="210m")
    wait(lambda: "but request is 210m" in stage.reason("small"), 60, "east denies it", lambda: dump(stage, running))
    assert "(container ray-worker; wait-gcs-ready, which KubeRay adds " in stage.reason("small")


@pytest.mark.alone  # nodes are cordoned
@pytest.mark.usefixtures("cordoned")
def test_cordoned_nodes_are_no_lack_of_quota(stage: Stage, running: Controller) -> None:
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: "nodes are cordoned" in stage.reason("pi"), 60, "it waits for nodes", lambda: dump(stage, running))
    assert "no ready node" not in stage.reason("pi") and "raise a quota" not in stage.reason("pi")
    for cluster in stage.fleet.workers.values():
        cluster.kubectl("uncordon", "--selector=kubernetes.io/hostname")
    wait(lambda: stage.running(2), 90, "it runs on uncordoned nodes", lambda: dump(stage, running))


def test_what_is_printed_is_a_pod_for_an_api_server(stage: Stage, tmp_path: Path) -> None:
    """Texts that look like numbers stay texts, and a number is reported instead of printed."""
    made: Raw = ray_cluster("pi", stage.name, {"workers": 1})
    spec = made["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec["nodeSelector"] = {"commit": "1e3", "flag": "y", "count": "8"}
    spec["containers"][0]["env"] = [{"name": "A", "value": "12e4567"}, {"name": "B", "value": "0x1f"}]
    stage.build({"east": 1})
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(made))
    told = rayspan("render", "-f", file)
    assert told.returncode == 0, told
    east = stage.fleet.workers["east"]
    done = json.loads(east.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=told.stdout))
    assert done["spec"]["nodeSelector"] == spec["nodeSelector"]
    spec["nodeSelector"] = {"count": 8}
    file.write_text(yaml.safe_dump(made))
    told = rayspan("render", "-f", file)
    assert (told.returncode, told.stdout) == (2, "") and "nodeSelector has count: 8, which is a number" in told.stderr


@pytest.mark.long
def test_why_says_what_keeps_a_worker_from_its_head(stage: Stage, running: Controller) -> None:
    """The head's address is a fake node's, where nothing answers. Without an access server the log is left out."""
    stage.build({"east": 1})
    stage.manager.apply(yaml.safe_dump(on_real_nodes(stage)))
    wait(lambda: _reason(stage) == "NotJoined", 90, "its worker waits for the head", lambda: dump(stage, running))
    told = _told(stage)
    assert "Likely its pods do not reach the head at " in told
    assert "(spec.head.address PodIP of WorkerCluster east), whose GCS it waits for: " in told


@pytest.mark.alone  # a component comes and goes
@pytest.mark.long
def test_why_repeats_the_end_of_the_workers_log(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1})
    manager, east = stage.manager, stage.fleet.workers["east"]
    folder = REPO / "kustomize/overlays/worker-logs"
    account = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
    with ExitStack() as stack:
        east.kubectl("apply", "-k", folder)
        stack.callback(east.kubectl, "delete", "-k", folder, "--ignore-not-found")
        east.kubectl("-n", stage.name, "create", "rolebinding", "logs", f"--clusterrole={names.LOGS_ROLE}", account)
        stack.enter_context(added(manager, "worker-access"))
        server = f"deployment/{names.ACCESS_ACCOUNT}"
        manager.kubectl("-n", names.SYSTEM_NAMESPACE, "rollout", "status", server, "--timeout=90s")
        manager.apply(yaml.safe_dump(on_real_nodes(stage)))
        wait(lambda: " ends with: " in _told(stage), 120, "the log is repeated", lambda: _told(stage))
        assert "Waiting for GCS" in _told(stage)


def _reason(stage: Stage) -> str:
    told = _why(stage, "-o", "json")
    return str(json.loads(told.stdout)["link"]["reason"]) if told.returncode == WAITS else ""


def _told(stage: Stage) -> str:
    return _why(stage).stdout


def _why(stage: Stage, *options: str) -> subprocess.CompletedProcess[str]:
    return rayspan("why", "pi", "-n", stage.name, "--kubeconfig", stage.manager.kubeconfig, *options)
