"""Tests that a stock RayJob spans the clusters as Ray sees it, and that its deletion removes everything."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import progress
from hack.testbed.clusters import Cluster, Clusters, program, wait
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, QUEUE, SAMPLE, Job
from hack.testbed.stage import added

ENDLESS = "import ray, signal\nray.init()\nsignal.pause()\n"  # runs until its job is deleted
WORDS = "raylet.out tail"  # `ray start` prints this at its end, after the last lines of the raylet
CRASHES = """
import os, signal
import ray

@ray.remote(max_retries=0)
def crashes():
    os.kill(os.getppid(), signal.SIGKILL)  # the raylet, without which the container ends

ray.init(logging_level="ERROR")
crashes.remote()
signal.pause()
"""


def test_rayjob_spans_both_clusters(job: Job) -> None:
    """Quota splits four workers evenly: one RayCluster, tasks in every zone, addresses of both networks."""
    job.submit()
    watching = _watching(job)
    job.wait_for_workers()
    addresses = {pod["status"]["podIP"]: pod["metadata"]["labels"][names.CLUSTER_LABEL] for pod in job.pods()}
    assert sorted(addresses.values()) == ["east", "east", "west", "west"]
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    output, _ = watching.communicate(timeout=30)
    assert watching.returncode == 0 and "Placed: 4 of 4 workers, 2 east, 2 west." in output, output
    assert "Runs: Its head runs, and all of its 4 workers have joined." in output, output
    # The event of the placement may be printed after it.
    assert any(line.endswith("Done: It has succeeded.") for line in output.splitlines()[-3:]), output

    result = job.result()
    assert result["ok"] and 3.1 < result["pi"] < 3.2
    workers = [node for node in result["nodes"] if not node["head"]]
    assert {node["address"]: node["cluster"] for node in workers} == addresses
    assert {node["cluster"]: node["zone"] for node in workers} == {"east": "east", "west": "west"}
    assert all(node["tasks"] > 0 for node in workers), workers
    assert job.events()["Placed"] == "2 of 4 workers to east, 2 to west."


def test_rayspan_plan_names_the_clusters_of_a_job(job: Job) -> None:
    """`rayspan plan` reaches the Deployment through the API server and the Service, and submits nothing."""
    done = progress.without(
        subprocess.run(
            [sys.executable, "-m", "adapter", "plan", "-f", str(SAMPLE), "--kubeconfig", str(job.manager.kubeconfig)],
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.endswith("Fits: 2 of 4 workers to east, 2 to west.\n"), done.stdout
    assert not job.status() and not job.placement()


@pytest.mark.long
def test_the_termination_message_of_a_crashed_worker_is_mirrored(pair: Job) -> None:
    """A raylet is killed during a task. The manager pod shows the last output of its container."""
    pair.submit(CRASHES)
    wait(lambda: _has_termination_message(pair), JOB_SECONDS, "a worker's termination message", pair.dump)


def _has_termination_message(job: Job) -> bool:
    containers = (status for pod in job.pods() for status in pod["status"].get("containerStatuses") or ())
    states = (status.get(state) or {} for status in containers for state in ("state", "lastState"))
    ends = (state.get("terminated") or {} for state in states)
    return any(WORDS in str(end.get("message")) and end["exitCode"] for end in ends)


@pytest.mark.long  # with pods that end at once: tests/integration/test_gang.py; more of logs: test_access.py there
def test_a_deleted_running_job_is_removed_from_every_cluster(pair: Job, reachable: None) -> None:
    """A job deleted while it runs leaves no pod, Workload or copied object in any cluster after 60 s.

    `rayspan logs -f` prints the output of both workers and of a replacement, and ends with the job.
    """
    pair.submit(ENDLESS)
    pair.wait_for_workers()
    assert pair.leftovers()
    pod_names = [pod["metadata"]["name"] for pod in pair.pods()]
    with _following(pair) as followed:
        wait(lambda: all(f"[pod/{name}/" in followed.read_text() for name in pod_names), 60, "both logs are followed")
        assert "Local node IP" in followed.read_text()
        pair.manager.delete("pod", pod_names[0], NAMESPACE, wait=False)
        wait(lambda: _further_pods(followed, pod_names), 120, "the log of the replacement is followed", pair.dump)
        pair.delete()
    pair.wait_until_gone()
    wait(
        lambda: not any(_reserving_workloads(cluster) for cluster in pair.fleet.workers.values()),
        30,
        "the quota is free",
    )


def _further_pods(followed: Path, pod_names: list[str]) -> set[str]:
    """The pods with output in `followed`, without `pod_names`."""
    return {*re.findall(r"\[pod/([^/]+)/", followed.read_text())} - {*pod_names}


@pytest.fixture
def reachable(fleet: Clusters) -> Iterator[None]:
    """Workers' logs are reachable from the manager: its component and each worker cluster's overlay are applied."""
    overlay = REPO / "kustomize/overlays/worker-logs"
    with ExitStack() as stack:
        for cluster in fleet.workers.values():
            cluster.kubectl("apply", "-k", overlay)
            stack.callback(cluster.kubectl, "delete", "-k", overlay, "--ignore-not-found")
        stack.enter_context(added(fleet.manager, "worker-access"))
        server = f"deployment/{names.ACCESS_ACCOUNT}"
        fleet.manager.kubectl("-n", names.SYSTEM_NAMESPACE, "rollout", "status", server, "--timeout=90s")
        yield


@contextmanager
def _following(job: Job) -> Iterator[Path]:
    """Run `rayspan logs -f` for a job and yield the file with its output; it must end with the job."""
    words = ["logs", "-f", f"rayjob/{job.name}", "--kubeconfig", str(job.manager.kubeconfig)]
    path = f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.NamedTemporaryFile("w") as file:
        command = [sys.executable, "-m", "adapter", *words]
        with subprocess.Popen(command, cwd=REPO, env={**os.environ, "PATH": path}, stdout=file) as child:
            try:
                yield Path(file.name)
                assert child.wait(90) == 0
            finally:
                child.terminate()


def _watching(job: Job) -> "subprocess.Popen[str]":
    """Start `rayspan watch`, which ends with the job."""
    words = [sys.executable, "-m", "adapter", "watch", f"rayjob/{job.name}", "-n", NAMESPACE]
    login = ["--kubeconfig", str(job.manager.kubeconfig)]
    return subprocess.Popen([*words, *login], cwd=REPO, stdout=subprocess.PIPE, text=True)


def _reserving_workloads(cluster: Cluster) -> int:
    return int(cluster.get("clusterqueues", QUEUE)["status"]["reservingWorkloads"])
