"""`rayspan plan` predicts what happens, for a user who may do nothing else, and changes nothing.

The request goes as a user's: the command as a process, the API server's proxy, the shipped Service and the shipped
Role. Only the Service's one endpoint is not the Deployment's pod (hack/testbed/plandoor.py).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import RawDict as Raw
from hack.testbed import plandoor
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import QUEUE, Stage, local_queue, ray_cluster

pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
]  # it reads the log of the controller, and reckons with what others leave free

USER = "scientist"


@pytest.fixture
def door(running: Controller, stage: Stage) -> Iterator[Controller]:
    """The running controller, behind the Service."""
    with plandoor.opened(stage.manager, running):
        yield running


@pytest.fixture
def scientist(stage: Stage, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a user without any right; whoever allows it to ask does so under the Role's own name."""
    manager = stage.manager
    stage.build({"east": 2, "west": 2})
    manager.kubectl("-n", stage.name, "create", "serviceaccount", USER)
    token = manager.kubectl("-n", stage.name, "create", "token", USER).strip()
    config = json.loads(manager.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = stage.name
    file = tmp_path / "scientist"
    file.touch(mode=0o600)
    file.write_text(json.dumps(config))
    yield file
    manager.delete("rolebinding", names.PLAN_ROLE, names.SYSTEM_NAMESPACE)


def test_a_user_asks_once_an_administrator_allows_it(stage: Stage, scientist: Path, door: Controller) -> None:
    """The refusal names the command that allows it; then the same user reads the table, and still may nothing else."""
    job = ray_cluster("pi", stage.name, {"workers": 4})
    refused = plandoor.plan(scientist, job)
    assert (refused.returncode, refused.stdout) == (1, "") and refused.stderr.count("\n") == 1
    command = refused.stderr.split("`")[1]
    account = f"system:serviceaccount:{stage.name}:{USER}"
    assert command == (
        f"kubectl -n rayspan-system create rolebinding rayspan-plan --role=rayspan-plan --user={account}"
    )
    stage.manager.kubectl(*command.replace("'", "").split()[1:])
    wait(lambda: plandoor.plan(scientist, job).returncode == 0, 20, "the right is known, and so are the queues")

    told = plandoor.plan(scientist, job)
    assert (told.returncode, told.stderr) == (0, "")
    head, table, end = told.stdout.split("\n\n")
    assert head.startswith(f"RayCluster {stage.name}/pi: 4 workers of group workers, each cpu 1\n")
    assert [line.split()[:8] for line in table.splitlines()[1:]] == [
        ["1", "east", "2", "2", "0", "2", "cpu", "0"],
        ["2", "west", "2", "2", "0", "2", "cpu", "0"],
    ]
    assert end == "Fits: 2 of 4 workers to east, 2 to west.\n"
    # Without a namespace in the file, the context's.
    del job["metadata"]["namespace"]
    assert json.loads(plandoor.plan(scientist, job, "-o", "json").stdout)["job"]["namespace"] == stage.name


def test_what_was_planned_is_what_happens(stage: Stage, door: Controller) -> None:
    """The plan's sentence and figures are the Placement's, for a job that fits and for one behind it that does not."""
    stage.build({"east": 2, "west": 3})
    first, second = (ray_cluster(name, stage.name, {"workers": 4}) for name in ("first", "second"))
    planned = wait(
        lambda: _fitting(stage, first), 20, "the controller knows the queues", lambda: str(_answer(stage, first))
    )
    stage.manager.apply(yaml.safe_dump(first))
    wait(lambda: stage.state("first") == PlacementState.PLACED, 60, "the first is placed", door.tail)
    _same(planned, stage.placement("first"))
    wait(lambda: "Placed" in stage.events("first"), 10, "the job is told")
    assert stage.told("first", "Placed") == stage.check("first")["message"] == planned["sentence"]

    told = plandoor.plan(stage.manager.kubeconfig, second, "-o", "json")
    assert told.returncode == 3
    planned = json.loads(told.stdout)
    assert [(one["cluster"], one["scarcest"]["used"], one["scarcest"]["free"]) for one in planned["clusters"]] == [
        ("east", "2", "0"),
        ("west", "2", "1"),
    ]
    stage.manager.apply(yaml.safe_dump(second))
    wait(lambda: stage.state("second") == PlacementState.WAITING, 60, "the second waits", door.tail)
    _same(planned, stage.placement("second"))
    wait(lambda: "Waiting" in stage.events("second"), 10, "the job is told")
    assert stage.told("second", "Waiting") == stage.check("second")["message"] == planned["sentence"]
    listed = stage.manager.kubectl("-n", stage.name, "get", "placements", "-o", "wide")
    assert planned["sentence"] in listed and stage.placement("first")["spec"]["explanation"] in listed


def test_one_that_waits_for_room_is_shown_what_the_clusters_have(stage: Stage, door: Controller) -> None:
    """`why` ends with the table of `plan`, which agrees with the Placement, and `top` has the same queues' figures."""
    stage.build({"east": 2, "west": 3})
    stage.ray_cluster("first", workers=4)
    wait(lambda: stage.state("first") == PlacementState.PLACED, 60, "the first is placed", door.tail)
    stage.ray_cluster("second", workers=4)
    wait(lambda: stage.state("second") == PlacementState.WAITING, 60, "the second waits", door.tail)

    config = stage.manager.kubeconfig
    told = plandoor.ask(config, "why", "second", "-n", stage.name, "-o", "json")
    assert (told.returncode, told.stderr) == (3, ""), told
    found = json.loads(told.stdout)
    assert found["planProblem"] is None and found["plan"]["fits"] is False, found
    assert found["plan"]["sentence"] == _answer(stage, ray_cluster("second", stage.name, {"workers": 4}))["sentence"]
    _same(found["plan"], stage.placement("second"))
    told = plandoor.ask(config, "why", "second", "-n", stage.name)
    *_, table, end = told.stdout.split("\n\n")
    header, *rows = table.splitlines()
    assert told.returncode == 3 and header.split()[:3] == ["ASKED", "CLUSTER", "CHOSEN"], told
    assert [line.split()[1] for line in rows] == ["east", "west"] and end.startswith("Does not fit"), told

    told = plandoor.ask(config, "top", "-o", "json")
    assert (told.returncode, told.stderr) == (0, ""), told
    clusters = {one["name"]: one["quota"] or () for one in json.loads(told.stdout)["clusters"]}
    amounts = {
        name: [
            (row["nominal"], row["used"], row["free"])
            for row in rows
            if row["clusterQueue"] == stage.name and row["resource"] == "cpu"
        ]
        for name, rows in clusters.items()
    }
    assert (amounts["east"], amounts["west"]) == ([("2", "2", "0")], [("3", "2", "1")]), told


def test_asking_changes_nothing_and_bad_questions_do_no_harm(stage: Stage, door: Controller) -> None:
    """Every wrong job gets a sentence and its exit code; nothing is written anywhere, and the controller goes on."""
    stage.build({"east": 1, "west": 1})
    _unchecked(stage)
    good = ray_cluster("pi", stage.name, {"workers": 2})
    before = _seen(stage)
    for code, words, job in _questions(stage.name):
        told = plandoor.plan(stage.manager.kubeconfig, job)
        said = told.stderr if code == 2 else told.stdout
        assert (told.returncode, words in said) == (code, True), f"{words}: {told}"
    assert plandoor.plan(stage.manager.kubeconfig, good).returncode == 0
    assert _seen(stage) == before
    assert "Traceback" not in door.log.read_text()


def _questions(namespace: str) -> Iterator[tuple[int, str, Raw | str]]:
    """Exit code, what is said, and the job."""

    def job(groups: dict[str, int] | None = None, cpu: str = "1", queue: str = QUEUE) -> Raw:
        made = ray_cluster("pi", namespace, groups or {"workers": 2}, cpu)
        made["metadata"]["labels"] = {names.QUEUE_LABEL: queue}
        return made

    def worker(made: Raw) -> Raw:
        found: Raw = made["spec"]["workerGroupSpecs"][0]["template"]["spec"]
        return found

    yield 2, "The file is not YAML", "a: ["
    yield 2, "found 0 of them in: Pod", {"apiVersion": "v1", "kind": "Pod"}
    yield 2, f"namespace {namespace} has no LocalQueue gold, it has ray, unchecked", job(queue="gold")
    yield 2, "has no kueue.x-k8s.io/queue-name", job(queue="")
    yield 2, "has no AdmissionCheck of rayspan.dev/dispatch", job(queue="unchecked")
    yield 2, "Kueue accepts at most 18", job({f"g{n}": 1 for n in range(18)})
    yield 2, "'lots' is not a quantity", job(cpu="lots")
    yield 2, "larger than 1 MiB", yaml.safe_dump(job()) + "#" * 2**20
    yield 3, "3 workers needed at once, 2 fit now", job({"workers": 3})
    yield 3, "Even empty clusters hold only 0", job(cpu="64")
    yield 3, "worker group workers: spec.containers have no resources.requests", job(cpu="0")
    refused = job()
    worker(refused)["hostNetwork"] = True
    yield 3, "worker group workers: spec.hostNetwork is true", refused
    odd = job()
    worker(odd)["tolerations"] = ["all"]
    yield 2, "a pod template in it cannot be read", odd


def _unchecked(stage: Stage) -> None:
    """A queue of the manager whose jobs are none of ours: Kueue admits them by itself."""
    spec: Raw = {"namespaceSelector": {}}
    queue = stage.add(stage.manager, "ClusterQueue", {"spec": spec}, f"{stage.name}-u")
    stage.manager.apply(yaml.safe_dump(local_queue("unchecked", stage.name, queue)))


def _same(planned: Raw, placement: Raw) -> None:
    assert planned["sentence"] == placement["spec"]["explanation"]
    considered = {one["cluster"]: one for one in placement["spec"]["considered"]}
    for one in planned["clusters"]:
        assert considered[one["cluster"]].items() <= one.items()


def _answer(stage: Stage, job: Raw) -> Raw:
    found: Raw = json.loads(plandoor.plan(stage.manager.kubeconfig, job, "-o", "json").stdout)
    return found


def _fitting(stage: Stage, job: Raw) -> Raw:
    """The plan once it fits, {} before: that queues are active is known to Kueue first."""
    found = _answer(stage, job)
    return found if found["fits"] else {}


def _seen(stage: Stage) -> list[tuple[str, str, str]]:
    """Everything of this stage that a controller could write, by version."""
    return [
        (kind, str(found["metadata"]["name"]), str(found["metadata"]["resourceVersion"]))
        for cluster in stage.fleet.all
        for kind in ("placements", "workloads", "pods", "configmaps", "events")
        if kind != "placements" or cluster is stage.manager
        for found in cluster.items(kind, stage.name)
    ]
