"""`rayspan list`, `where`, `why`, `watch` and `top` are right, for a user who may view one namespace of the manager.

It runs the commands as processes. No plan is made here: the deployed controller is parked while these tests run.
"""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed import progress
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

USER = "scientist"
RUNS, WAITS, REFUSED, NO_JOB = 0, 3, 4, 2


@pytest.fixture
def scientist(stage: Stage, tmp_path: Path) -> Path:
    """The kubeconfig of a user who may view the stage's namespace, and nothing else."""
    manager = stage.manager
    stage.build({"east": 2, "west": 2})
    manager.kubectl("-n", stage.name, "create", "serviceaccount", USER)
    _bound(stage, "view")
    token = manager.kubectl("-n", stage.name, "create", "token", USER).strip()
    config = json.loads(manager.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = stage.name
    file = tmp_path / USER
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    return file


def test_a_gang_that_runs_is_shown_to_who_may_view_its_namespace(
    stage: Stage, running: Controller, scientist: Path
) -> None:
    """Its head and its workers with their clusters; what is for administrators is told, and the rest is shown."""
    stage.ray_cluster("pi", workers=4)
    wait(lambda: _ask(scientist, "why", "pi").returncode == RUNS, 120, "it runs", lambda: _told(stage, running))
    told = _ask(scientist, "where", "pi")
    assert (told.returncode, told.stderr) == (0, "")
    assert "Placed: 4 of 4 workers, 2 east, 2 west." in told.stdout
    assert "Runs: Its head runs, and all of its 4 workers have joined." in told.stdout
    assert "You may not read workerclusters here: zones" in told.stdout

    found = _json(scientist, "where", "raycluster/pi")
    assert Counter((one["role"], one["cluster"]) for one in found["nodes"]) == {
        ("head", "manager"): 1,
        ("worker", "east"): 2,
        ("worker", "west"): 2,
    }
    assert {one["name"] for one in found["nodes"] if one["role"] == "worker"} == {
        pod["metadata"]["name"] for pod in stage.workers()
    }
    assert all(one["ready"] and one["phase"] == "Running" for one in found["nodes"])
    assert found["placement"]["name"] == stage.placement("pi")["metadata"]["name"]
    assert len(found["notes"]) == 2, "WorkerClusters and AdmissionChecks are for administrators"

    (row,) = _json(scientist, "list")["jobs"]
    assert (row["name"], row["outcome"], row["workers"], row["where"]) == ("pi", "Runs", "4 of 4", "2 east, 2 west")
    assert _ask(scientist, "list", "-o", "name").stdout == "raycluster.ray.io/pi\n"
    everywhere = _ask(scientist, "list", "-A")
    assert everywhere.returncode == 0 and "You may not read rayclusters here" in everywhere.stdout

    zones = {
        one["cluster"]: one["zone"] for one in _json(stage.manager.kubeconfig, "where", "pi", "-n", stage.name)["nodes"]
    }
    written = {name: stage.manager.get("workerclusters", name)["spec"].get("zone") or name for name in ("east", "west")}
    assert zones == {"manager": None, **written}


@pytest.mark.long
def test_who_may_create_rayclusters_there_submits_one_and_deletes_it(
    stage: Stage, running: Controller, scientist: Path
) -> None:
    """As docs/joining.md gives a team its rights: `edit` is not enough, and Kueue's own role is."""
    mine = replace(stage.manager, kubeconfig=scientist)
    made = yaml.safe_dump(ray_cluster("mine", stage.name, {"workers": 2}))
    _bound(stage, "edit")
    wait(lambda: _may(mine, "create", "configmaps"), 30, "that right is there")
    with pytest.raises(LabError, match="cannot create resource"):
        mine.apply(made)
    _bound(stage, "kueue-raycluster-editor-role")
    wait(lambda: _may(mine, "create", "rayclusters.ray.io"), 30, "the right is there")
    mine.apply(made)
    wait(lambda: _ask(scientist, "why", "mine").returncode == RUNS, 120, "it runs", lambda: _told(stage, running))
    assert "Placed: 2 of 2 workers" in _ask(scientist, "where", "mine").stdout
    mine.kubectl("-n", stage.name, "delete", "raycluster", "mine", "--wait=false")
    wait(lambda: not stage.leftovers(), 60, "nothing is left", running.tail)


def _may(user: Cluster, *words: str) -> bool:
    try:
        user.kubectl("auth", "can-i", *words, "--quiet")
    except LabError:
        return False
    return True


def _bound(stage: Stage, role: str) -> None:
    account = f"--serviceaccount={stage.name}:{USER}"
    stage.manager.kubectl("-n", stage.name, "create", "rolebinding", role, f"--clusterrole={role}", account)


@pytest.mark.long
def test_one_that_is_watched_is_told_until_it_is_gone(stage: Stage, running: Controller, scientist: Path) -> None:
    """From the queue over its workers to its end, to a program, and never the same twice."""
    stage.ray_cluster("pi", workers=2)
    words = [sys.executable, "-m", "adapter", "watch", "raycluster/pi", "-o", "json", "--kubeconfig", str(scientist)]
    with subprocess.Popen(words, cwd=REPO, stdout=subprocess.PIPE, text=True) as watching:
        try:
            found = []
            assert watching.stdout
            for line in watching.stdout:
                found.append(json.loads(line))
                if found[-1]["outcome"] == "Runs" and len(found[-1]["nodes"]) == 3:
                    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
            assert watching.wait(30) == 0, found[-1:]
        finally:
            watching.kill()
    times = [one.pop("time") for one in found]
    assert times == sorted(times)
    assert all(one != other for one, other in pairwise(found))


@pytest.mark.long
def test_the_fleet_shows_its_workers(stage: Stage, running: Controller, scientist: Path) -> None:
    stage.ray_cluster("pi", workers=4)
    wait(lambda: stage.running(4), 120, "it runs", running.tail)
    found = {one["name"]: one for one in _json(stage.manager.kubeconfig, "top")["clusters"]}
    for name in ("east", "west"):
        written = stage.manager.get("workerclusters", name)
        assert found[name]["connected"] == condition(written, names.CONNECTED)["status"] == "True"
        assert found[name]["workers"]["Running"] >= 2, "others run beside these"
    told = _ask(scientist, "top")
    assert told.returncode == 0 and "You may not read workerclusters here" in told.stdout


def test_one_that_waits_for_room_says_what_is_missing(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=4)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    found = _json(stage.manager.kubeconfig, "why", "pi", "-n", stage.name, code=WAITS)
    assert (found["link"]["stage"], found["link"]["reason"]) == ("Placement", PlacementState.WAITING)
    assert found["link"]["sentence"] == stage.reason("pi")
    assert found["steps"][2:4] == [
        {"stage": "AdmissionCheck", "state": "ok"},
        {"stage": "Placement", "state": "Waits"},
    ]
    (row,) = _json(stage.manager.kubeconfig, "list", "-n", stage.name)["jobs"]
    assert (row["outcome"], row["workers"], row["sentence"]) == ("Waits", "0 of 4", found["link"]["sentence"])
    assert found["plan"] is None and found["planProblem"], "the Service has no endpoint now"
    told = _ask(stage.manager.kubeconfig, "why", "pi", "-n", stage.name)
    assert "Waits: 4 workers needed at once, 2 fit now" in told.stdout and "No plan is shown: " in told.stdout
    assert _json(stage.manager.kubeconfig, "where", "pi", "-n", stage.name)["nodes"] == []


@pytest.mark.long
def test_one_that_waits_for_the_managers_quota_says_so(stage: Stage, running: Controller) -> None:
    stage.build({"east": 4}, manager_cpu=1)
    stage.ray_cluster("pi", workers=4)
    wait(lambda: _reason(stage, "pi", WAITS) == "ManagerQuota", 60, "Kueue says so", lambda: _told(stage, running))
    found = _json(stage.manager.kubeconfig, "why", "pi", "-n", stage.name, code=WAITS)
    message = condition(stage.workload("pi"), names.QUOTA_RESERVED).get("message") or ""
    assert message.strip(" .") in found["link"]["sentence"]


@pytest.mark.long
def test_one_that_is_refused_says_why(stage: Stage, running: Controller) -> None:
    """First by the check's state, then by the eviction that Kueue makes of it: the sentence is the same."""
    stage.build({"east": 1, "west": 1})
    job = ray_cluster("pi", stage.name, {"workers": 1})
    pod = job["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
    stage.manager.apply(yaml.safe_dump(job))
    wait(lambda: _reason(stage, "pi", REFUSED) == "Rejected", 60, "it is refused", lambda: _told(stage, running))

    def off() -> bool:
        return stage.workload("pi")["spec"].get("active") is False

    wait(off, 60, "Kueue deactivates it", lambda: _told(stage, running))
    wait(lambda: _reason(stage, "pi", REFUSED) == "Rejected", 30, "it says the same", lambda: _told(stage, running))
    told = _ask(stage.manager.kubeconfig, "why", "pi", "-n", stage.name)
    assert told.returncode == REFUSED and "hostPath" in told.stdout and "submit it again" in told.stdout


@pytest.mark.long
def test_one_without_a_queue_and_none_at_all(stage: Stage, running: Controller) -> None:
    """Nobody but KubeRay looks at it, which makes none of its pods while it is suspended."""
    stage.build({"east": 1, "west": 1})
    job = ray_cluster("pi", stage.name, {"workers": 1})
    del job["metadata"]["labels"]
    job["spec"]["suspend"] = True
    stage.manager.apply(yaml.safe_dump(job))
    found = _json(stage.manager.kubeconfig, "why", "pi", "-n", stage.name, code=REFUSED)
    assert (found["link"]["stage"], found["link"]["reason"], found["queue"]) == ("Job", "NoQueue", None)
    assert _ask(stage.manager.kubeconfig, "where", "pi", "-n", stage.name).returncode == 0
    told = _ask(stage.manager.kubeconfig, "why", "no-such", "-n", stage.name)
    assert (told.returncode, told.stdout) == (NO_JOB, "")
    assert told.stderr == f"Namespace {stage.name} has no RayJob, RayCluster or RayService no-such that you may see.\n"


def _reason(stage: Stage, job: str, code: int) -> str:
    """The word for what holds the job up, empty while `why` ends with another code."""
    told = _ask(stage.manager.kubeconfig, "why", job, "-n", stage.name, "-o", "json")
    return str(json.loads(told.stdout)["link"]["reason"]) if told.returncode == code else ""


def _told(stage: Stage, running: Controller) -> str:
    return f"{_ask(stage.manager.kubeconfig, 'why', 'pi', '-n', stage.name)}\n{running.tail()}"


def _json(kubeconfig: Path, verb: str, *words: str, code: int = 0) -> Raw:
    told = _ask(kubeconfig, verb, *words, "-o", "json")
    assert (told.returncode, told.stderr) == (code, ""), told
    found: Raw = json.loads(told.stdout)
    return found


def _ask(kubeconfig: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a process."""
    return progress.without(
        subprocess.run(
            [sys.executable, "-m", "adapter", verb, *words, "--kubeconfig", str(kubeconfig)],
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    )
