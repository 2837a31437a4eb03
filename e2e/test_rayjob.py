"""Does a stock RayJob span the clusters, seen from inside Ray, and is it gone when its owner deletes it?"""

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

ENDLESS = "import ray, signal\nray.init()\nsignal.pause()\n"  # it goes on until its job is deleted
WORDS = "raylet.out tail"  # of what `ray start` ends with, after the raylet's own last lines
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
    """Four workers, two in each cluster by quota: one RayCluster, work done in every zone, addresses of both networks."""
    job.submit()
    watching = _watching(job)
    job.wait_for_workers()
    addresses = {pod["status"]["podIP"]: pod["metadata"]["labels"][names.CLUSTER_LABEL] for pod in job.pods()}
    assert sorted(addresses.values()) == ["east", "east", "west", "west"]
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    said, _ = watching.communicate(timeout=30)
    assert watching.returncode == 0 and "Placed: 4 of 4 workers, 2 east, 2 west." in said, said
    assert "Runs: Its head runs, and all of its 4 workers have joined." in said, said
    assert any(line.endswith("Done: It has succeeded.") for line in said.splitlines()[-3:]), (
        said
    )  # what was placed may be told after it

    result = job.result()
    assert result["ok"] and 3.1 < result["pi"] < 3.2
    workers = [node for node in result["nodes"] if not node["head"]]
    assert {node["address"]: node["cluster"] for node in workers} == addresses
    assert {node["cluster"]: node["zone"] for node in workers} == {"east": "east", "west": "west"}
    assert all(node["tasks"] > 0 for node in workers), workers
    assert job.events()["Placed"] == "2 of 4 workers to east, 2 to west."


def test_a_plan_says_beforehand_where_it_will_run(job: Job) -> None:
    """`rayspan plan` for the sample, through the API server and the Service to the Deployment; nothing is submitted."""
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
def test_last_words_of_a_crashed_worker(pair: Job) -> None:
    """Ray's node is killed under a task; its container ends with what it had printed, which is in the manager's pod, too."""
    pair.submit(CRASHES)
    wait(lambda: _last_words(pair), JOB_SECONDS, "a worker's last words", pair.dump)


def _last_words(job: Job) -> bool:
    statuses = (one for pod in job.pods() for one in pod["status"].get("containerStatuses") or ())
    ends = ((one.get(state) or {}).get("terminated") or {} for one in statuses for state in ("state", "lastState"))
    return any(WORDS in str(end.get("message")) and end["exitCode"] for end in ends)


@pytest.mark.long  # with pods that end at once: tests/integration/test_gang.py; of logs test_access.py there asks for more
def test_deleted_in_the_middle(pair: Job, reachable: None) -> None:
    """A job that is deleted while its workers run leaves no pod, Workload or copy in any cluster within 60 s. Whoever follows
    its logs in the manager has read what both workers printed, and what one that replaced another did, and is at the end of them, too."""
    pair.submit(ENDLESS)
    pair.wait_for_workers()
    assert pair.leftovers()
    names_of = [pod["metadata"]["name"] for pod in pair.pods()]
    with _following(pair) as followed:
        wait(lambda: all(f"[pod/{name}/" in followed.read_text() for name in names_of), 60, "both logs are followed")
        assert "Local node IP" in followed.read_text()
        pair.manager.delete("pod", names_of[0], NAMESPACE, wait=False)
        wait(lambda: _others(followed, names_of), 120, "the log of the one that replaces it is followed", pair.dump)
        pair.delete()
    pair.wait_until_gone()
    wait(lambda: not any(_reserving(cluster) for cluster in pair.fleet.workers.values()), 30, "the quota is free")


def _others(followed: Path, names_of: list[str]) -> set[str]:
    """The pods that printed, and that were not there at first."""
    return {*re.findall(r"\[pod/([^/]+)/", followed.read_text())} - {*names_of}


@pytest.fixture
def reachable(fleet: Clusters) -> Iterator[None]:
    """Logs of workers are reached in the manager: the component there, and what each worker cluster's administrator adds."""
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
    """`rayspan logs -f` of a job for as long as it goes on, which the job's end is to end; gives the file that has what it printed."""
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
    """`rayspan watch`, which ends with the job."""
    words = [sys.executable, "-m", "adapter", "watch", f"rayjob/{job.name}", "-n", NAMESPACE]
    login = ["--kubeconfig", str(job.manager.kubeconfig)]
    return subprocess.Popen([*words, *login], cwd=REPO, stdout=subprocess.PIPE, text=True)


def _reserving(cluster: Cluster) -> int:
    return int(cluster.get("clusterqueues", QUEUE)["status"]["reservingWorkloads"])
