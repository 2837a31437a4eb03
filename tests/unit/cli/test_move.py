"""`rayspan move` from its user's view: writes, output and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapter import names
from adapter.cli import remaining_watch
from adapter.objects.unstructured import Raw
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import NAMESPACE, make_worker_cluster
from tests.unit.verbs import run

RAY = f"/apis/ray.io/v1/namespaces/{NAMESPACE}"
OPTIONS = ("-n", NAMESPACE)
HINT = (
    "rayjob/train continues to move; `kubectl rayspan move -n demo rayjob/train --from east` watches again, and "
    "`kubectl rayspan move -n demo rayjob/train --from east --cancel` stops it.\n"
)
FORBIDDEN = 'rayjobs.ray.io "train" is forbidden: User "jane" cannot patch resource "rayjobs" in API group "ray.io"'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remaining_watch, "PAUSE_SECONDS", 0.01)


def job(
    move_from: str = "", *, kind: str = "RayJob", name: str = "train", queue: str = "team-a", owner: str = ""
) -> Raw:
    annotations = {names.MOVE_FROM_ANNOTATION: move_from} if move_from else {}
    owners = [{"apiVersion": "ray.io/v1", "kind": owner, "name": "boss", "uid": "u-boss", "controller": True}]
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"u-{name}",
        "resourceVersion": "7",
        "labels": {names.QUEUE_LABEL: queue} if queue else {},
        "annotations": annotations,
        "ownerReferences": owners if owner else [],
    }
    return {"kind": kind, "metadata": meta, "spec": {}, "status": {"rayClusterName": "train-abc"}}


def service(move_from: str = "") -> Raw:
    status = {"activeServiceStatus": {"rayClusterName": "chat-a"}, "pendingServiceStatus": {"rayClusterName": "chat-b"}}
    return {**job(move_from, kind="RayService", name="chat"), "status": status}


def pods(count: int, *, cluster: str = "east") -> Raw:
    labels = {"rayspan.dev/placement": "train", "rayspan.dev/cluster": cluster}
    metas = [{"namespace": NAMESPACE, "uid": f"u{number}", "labels": labels} for number in range(count)]
    return {"kind": "PodList", "items": [{"metadata": meta, "status": {"phase": "Running"}} for meta in metas]}


def placements(reason: str = "", *, name: str = "train", **shares: int) -> Raw:
    groups = [
        {"cluster": cluster, "groups": [{"name": "w", "role": "r", "count": count}]}
        for cluster, count in shares.items()
    ]
    spec = {"job": {"kind": "RayJob", "name": name}, "shares": groups}
    meta = {"namespace": NAMESPACE, "name": name}
    return {"metadata": meta, "spec": spec, "status": {"state": "Placed", "reason": reason}}


def poll(count: int, reason: str = "", *, move_from: str = "east", more: Raw | None = None) -> list[Answer]:
    items = [placements(reason), *([more] if more else [])]
    return [says(job(move_from)), says(pods(count)), says({"kind": "PlacementList", "items": items})]


def start(move_from: str = "") -> list[Answer]:
    return [says(job(move_from)), says(make_worker_cluster("east")), says(job("east"))]


def writes(server: Server) -> list[tuple[str, Any]]:
    return [(asked.path, asked.body) for asked in server.asked if asked.method == "PATCH"]


def patch_of(name: str, move_from: str | None) -> Raw:
    metadata = {"uid": f"u-{name}", "resourceVersion": "7", "annotations": {names.MOVE_FROM_ANNOTATION: move_from}}
    return {"metadata": metadata}


@pytest.mark.parametrize(
    ("before", "words", "written", "line"),
    [
        ("", ["--from", "east"], "east", "moving from east"),
        ("west", ["--from", "east"], "west,east", "moving from east"),
        ("", ["--from", "east", "--from", "west"], "east,west", "moving from east and west"),
        ("west, east", ["--from", "east"], "", "already moving from east"),
        ("west, east", ["--from", "east", "--cancel"], "west", "no longer moving from east"),
        ("west,east", ["--cancel"], None, "no longer moving"),
        ("west", ["--from", "east", "--cancel"], "", "not moving from east"),
        ("", ["--cancel"], "", "not moving"),
    ],
)
async def test_it_writes_only_changes_and_reports_them(
    before: str,
    words: list[str],
    written: str | None,
    line: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clusters = [] if "--cancel" in words else [says(make_worker_cluster(name)) for name in words if name != "--from"]
    server.lists = [says(job(before)), *clusters, says(job())]
    options = (*OPTIONS, "--wait=false", "--kubeconfig", config)
    assert await run(monkeypatch, "move", "train", *words, *options) == 0
    assert capsys.readouterr() == (f"rayjob/train {line}\n", "")
    assert writes(server) == ([] if written == "" else [(f"{RAY}/rayjobs/train", patch_of("train", written))])


async def test_a_rayservice_and_its_rayclusters_get_the_annotation(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """KubeRay copies it only to the RayClusters that it creates later."""
    first, second = (job(kind="RayCluster", name=name) for name in ("chat-a", "chat-b"))
    server.lists = [says(service()), says(make_worker_cluster("east")), says(first), says(second), *[says(first)] * 3]
    words = ("move", "rayservice/chat", "--from", "east", *OPTIONS, "--wait=false", "--kubeconfig", config)
    assert await run(monkeypatch, *words) == 0
    assert capsys.readouterr().out == "rayservice/chat moving from east\n"
    assert writes(server) == [
        (f"{RAY}/rayservices/chat", patch_of("chat", "east")),
        (f"{RAY}/rayclusters/chat-a", patch_of("chat-a", "east")),
        (f"{RAY}/rayclusters/chat-b", patch_of("chat-b", "east")),
    ]


async def test_a_write_of_another_client_stays(server: Server, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = job("west")
    later["metadata"]["resourceVersion"] = "8"
    conflict = refuses(409, "Conflict", "the object has been modified")
    server.lists = [says(job()), says(make_worker_cluster("east")), conflict, says(later), says(later)]
    words = ("move", "train", "--from", "east", *OPTIONS, "--wait=false", "--kubeconfig", config)
    assert await run(monkeypatch, *words) == 0
    metadata = writes(server)[-1][1]["metadata"]
    assert (metadata["resourceVersion"], metadata["annotations"]) == ("8", {names.MOVE_FROM_ANNOTATION: "west,east"})


async def test_a_move_reports_each_change_until_no_worker_is_left(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another job's quota there does not count, and a single poll without workers may be one before the next plan."""
    others = placements(name="other", east=3)
    polls = [*poll(2), *poll(2, "no capacity.", more=others), *poll(0), *poll(1), *poll(0), *poll(0)]
    server.lists = [*start(), *polls]
    assert await run(monkeypatch, "move", "train", "--from", "east", *OPTIONS, "--kubeconfig", config) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "rayjob/train moving from east",
        "RayJob demo/train: 2 workers left",
        "RayJob demo/train: 2 workers left; no capacity.",
        "RayJob demo/train: no worker left",
        "RayJob demo/train: 1 worker left",
        "RayJob demo/train: no worker left",
        "rayjob/train moved from east",
    ]
    assert printed.err == ""
    listed = [asked for asked in server.asked if asked.path.endswith("/pods")]
    assert listed[0].query["labelSelector"] == "rayspan.dev/placement,ray.io/cluster in (train-abc)"
    assert {asked.path for asked in listed} == {f"/api/v1/namespaces/{NAMESPACE}/pods"}


async def test_programs_read_the_remaining_workers_at_each_change(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [*start(), *poll(2), *poll(2), *poll(0), *poll(0)]
    words = ("move", "train", "--from", "east", "-o", "json", *OPTIONS, "--kubeconfig", config)
    assert await run(monkeypatch, *words) == 0
    entry = {"job": "RayJob demo/train", "workers": 2, "reserved": 0, "reason": None}
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"job": "RayJob demo/train", "from": ["east"], "left": 2, "jobs": [entry]},
        {"job": "RayJob demo/train", "from": ["east"], "left": 0, "jobs": []},
    ]


@pytest.mark.parametrize(
    ("polls", "message"),
    [
        pytest.param(
            poll(2, move_from="west"),
            "Another client stopped the move of rayjob/train, and 2 workers remain in east.\n",
            id="another client removed the cluster",
        ),
        pytest.param(poll(2), f"The timeout has passed, and 2 workers remain in east. {HINT}", id="the timeout"),
        pytest.param([refuses(404, "NotFound", "no train.")], "no train.\n", id="the job was deleted"),
    ],
)
async def test_a_watch_that_ends_before_the_move(
    polls: list[Answer],
    message: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the last scripted answer none comes."""
    server.lists = [*start("east"), *polls]
    server.lists.pop(2)  # nothing is written
    words = ("move", "train", "--from", "east", "--timeout=1s", *OPTIONS, "--kubeconfig", config)
    assert await run(monkeypatch, *words) == 1
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("answers", "code", "message"),
    [
        pytest.param(
            [says(job(queue=""))],
            2,
            (
                "RayJob demo/train has no label kueue.x-k8s.io/queue-name: none of its workers runs in a worker "
                "cluster.\n"
            ),
            id="a job without a queue",
        ),
        pytest.param(
            [says(job(owner="RayJob"))],
            2,
            "RayJob demo/train belongs to RayJob boss: name rayjob/boss.\n",
            id="not a job of its own",
        ),
        pytest.param(
            [says(job()), refuses(404, "NotFound", "none")],
            2,
            "There is no WorkerCluster east; `kubectl get workerclusters` lists those that exist.\n",
            id="no such cluster",
        ),
        pytest.param(
            [says(job()), refuses(403, "Forbidden", "no"), refuses(403, "Forbidden", FORBIDDEN)],
            1,
            (
                "You may not change RayJob demo/train; an administrator of the manager cluster can allow it with "
                "`kubectl -n demo create rolebinding rayspan-user --clusterrole=rayspan-user --user=jane`.\n"
            ),
            id="no right to patch it",
        ),
    ],
)
async def test_trouble_is_one_sentence(
    answers: list[Answer],
    code: int,
    message: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = answers
    assert await run(monkeypatch, "move", "rayjob/train", "--from", "east", *OPTIONS, "--kubeconfig", config) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("words", [["train"], ["train", "--from", "East!"], ["--from", "east"]], ids=" ".join)
async def test_a_wrong_command_line_makes_no_request(
    words: list[str], server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(monkeypatch, "move", *words, "--kubeconfig", config) == 2
    assert capsys.readouterr().err and not server.asked
