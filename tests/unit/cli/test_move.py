"""`rayspan move` from its user's view: writes, output and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapter import names
from adapter.cli import move, remaining_watch
from adapter.objects.move_from import MAX_LENGTH
from adapter.objects.unstructured import Raw
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import NAMESPACE, make_worker_cluster
from tests.unit.verbs import run, run_until_silent

RAY = f"/apis/ray.io/v1/namespaces/{NAMESPACE}"
OPTIONS = ("-n", NAMESPACE)
SERVICE = ("move", "rayservice/chat", "--from", "east", *OPTIONS)
PAUSE = remaining_watch.PAUSE_SECONDS
COMMAND = "kubectl rayspan move -n demo rayjob/train --kubeconfig CONFIG --from east"
HINT = f"rayjob/train continues to move; `{COMMAND}` watches again, and `{COMMAND} --cancel` stops it.\n"
ALLOW = (
    "an administrator of the manager cluster can allow it with `kubectl -n demo create rolebinding rayspan-user "
    "--clusterrole=rayspan-user --user=jane`.\n"
)
MANY = ",".join(f"{number:063}" for number in range(64))  # the longest annotation that is read
IGNORED = (
    "RayJob demo/train: annotation rayspan.dev/move-from names WorkerClusters that do not exist ({}), and is ignored "
    "in that; correct the name, or remove it"
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


def ray_cluster(name: str, move_from: str = "", **more: str) -> Raw:
    """A RayCluster of the RayService."""
    raw = job(move_from, kind="RayCluster", name=name)
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": "u-chat", "controller": True}
    return {**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner], **more}}


def ray_clusters(*items: Raw) -> Answer:
    return says({"kind": "RayClusterList", "items": items})


def service_poll(*items: Raw, writes: int = 0, move_from: str = "east") -> list[Answer]:
    """A poll without workers, with this many writes to RayClusters."""
    answers = [ray_clusters(*items), says(service(move_from)), *[says(job())] * writes, says(pods(0))]
    return [*answers, says({"kind": "PlacementList", "items": []})]


def ignored(*clusters: str, at: str) -> Answer:
    source = {"component": names.EVENT_SOURCE}
    text = IGNORED.format(", ".join(clusters))
    event = {"type": "Warning", "lastTimestamp": at, "message": text, "source": source, "metadata": {"name": "e"}}
    return says({"kind": "EventList", "items": [event]})


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
    """KubeRay copies it only to the RayClusters that it creates later, and may delete one meanwhile."""
    others = job(kind="RayCluster", name="other", owner="RayService")
    listed = ray_clusters(ray_cluster("chat-a"), others, ray_cluster("chat-b"), ray_cluster("chat-c"))
    answers = [says(job()), says(job()), refuses(404, "NotFound", "no chat-b."), says(job())]
    server.lists = [says(service()), says(make_worker_cluster("east")), listed, *answers]
    assert await run(monkeypatch, *SERVICE, "--wait=false", "--kubeconfig", config) == 0
    assert capsys.readouterr().out == "rayservice/chat moving from east\n"
    assert writes(server) == [
        (f"{RAY}/rayservices/chat", patch_of("chat", "east")),
        (f"{RAY}/rayclusters/chat-a", patch_of("chat-a", "east")),
        (f"{RAY}/rayclusters/chat-b", patch_of("chat-b", "east")),
        (f"{RAY}/rayclusters/chat-c", patch_of("chat-c", "east")),
    ]


async def test_the_raycluster_of_an_upgrade_gets_the_annotation_while_it_is_watched(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status does not name it yet. After that write the controller has its time again."""
    monkeypatch.setattr(move, "POLLS_WITHOUT_WORKERS", 3)
    before, created = ray_cluster("chat-a", "east"), ray_cluster("chat-x", "west")
    deleted = ray_cluster("chat-y", deletionTimestamp="2026-01-01T00:00:00Z")
    polls = [
        *service_poll(before),
        *service_poll(before),
        *service_poll(before, created, deleted, writes=1),
        *service_poll(before, ray_cluster("chat-x", "west,east"), deleted),
    ]
    begin = [says(service("east")), says(make_worker_cluster("east")), ray_clusters(before)]
    server.lists = [*begin, *polls, *service_poll(move_from="")]
    assert await run(monkeypatch, *SERVICE, "--kubeconfig", config) == 1, "it polls after the write"
    assert writes(server) == [(f"{RAY}/rayclusters/chat-x", patch_of("chat-x", "west,east"))]
    listed = [asked.query["labelSelector"] for asked in server.asked if asked.path.endswith("/pods")]
    assert listed[2] == "rayspan.dev/placement,ray.io/cluster in (chat-a,chat-b,chat-x,chat-y)"
    assert "Another client stopped the move of rayservice/chat" in capsys.readouterr().err


async def test_a_cancelled_move_is_not_written_again(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = [says(service("east")), says(make_worker_cluster("east")), ray_clusters(ray_cluster("chat-a", "east"))]
    conflict = [ray_clusters(ray_cluster("chat-a")), says(service("east")), refuses(409, "Conflict", "modified")]
    conflict += [says(pods(0)), says({"kind": "PlacementList", "items": []})]
    server.lists = [*begin, *conflict, *service_poll(ray_cluster("chat-a"), move_from="")]
    assert await run(monkeypatch, *SERVICE, "--kubeconfig", config) == 1
    assert len(writes(server)) == 1
    assert capsys.readouterr().err == (
        "Another client stopped the move of rayservice/chat, and 0 workers remain in east.\n"
    )


@pytest.mark.parametrize(
    ("answers", "written", "message"),
    [
        pytest.param(
            [ray_clusters(ray_cluster("chat-a")), says(job()), refuses(403, "Forbidden", "no")],
            2,
            "You may not change RayCluster demo/chat-a (already changed: RayService demo/chat); ",
            id="it may not be written",
        ),
        pytest.param(
            [refuses(403, "Forbidden", "no")],
            0,
            "You may not read the RayClusters of RayService demo/chat, and each needs the annotation; ",
            id="they may not be read",
        ),
    ],
)
async def test_the_refused_raycluster_is_named(
    answers: list[Answer],
    written: int,
    message: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [says(service()), says(make_worker_cluster("east")), *answers]
    assert await run(monkeypatch, *SERVICE, "--kubeconfig", config) == 1
    assert capsys.readouterr() == ("", message + ALLOW.replace("--user=jane", "--group=GROUP"))
    assert len(writes(server)) == written


@pytest.mark.parametrize(
    ("before", "at", "is_reported"),
    [
        pytest.param("", "2999-01-01T00:00:00Z", True, id="newer than the write"),
        pytest.param("", "2001-01-01T00:00:00Z", False, id="of an older annotation"),
        pytest.param("eas", "2001-01-01T00:00:00Z", True, id="nothing was written"),
    ],
)
async def test_without_the_right_to_read_workerclusters_the_event_names_a_typo(
    before: str,
    at: str,
    is_reported: bool,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(move, "POLLS_WITHOUT_WORKERS", 2)
    begin = [says(job(before)), refuses(403), *([] if before else [says(job())])]
    first = [*poll(0, move_from="eas"), ignored("eats", at="2999-01-01T00:00:00Z")]
    server.lists = [*begin, *first, *poll(0, move_from="eas"), ignored("west", "eas", at=at)]
    code = await run(monkeypatch, "move", "train", "--from", "eas", *OPTIONS, "--kubeconfig", config)
    printed = capsys.readouterr()
    if is_reported:
        remedy = f"`{COMMAND.replace('CONFIG', str(config)).replace('east', 'eas')} --cancel` removes it."
        assert (code, printed.err) == (1, f"{IGNORED.format('west, eas')}. (As of {at}.) {remedy}\n")
    else:
        assert (code, printed.err) == (0, "") and printed.out.endswith("rayjob/train moved from eas\n")
    listed = [asked.query["fieldSelector"] for asked in server.asked if asked.path.endswith("/events")]
    assert listed == ["involvedObject.uid=u-train,reason=MoveFromIgnored"] * 2


async def test_a_cluster_that_is_empty_from_the_beginning_is_reported_after_ten_seconds(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (move.POLLS_WITHOUT_WORKERS - 1) * PAUSE >= 10
    server.lists = [*start(), *poll(0) * 10, *poll(0)]
    assert await run(monkeypatch, "move", "train", "--from", "east", *OPTIONS, "--kubeconfig", config) == 0
    assert not server.lists


@pytest.mark.parametrize(("words", "code"), [(["--from", "east"], 2), (["--from", "0" * 63, "--cancel"], 0)])
async def test_a_list_that_is_too_long_is_not_written(
    words: list[str],
    code: int,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = MANY if code else f"{MANY},east,{'1' * 63},west"  # too long even without the cancelled cluster
    assert (len(MANY) <= MAX_LENGTH < len(f"{MANY},east")) and MANY.startswith("0" * 63)
    server.lists = [says(job(before)), *([says(make_worker_cluster("east"))] if code else []), says(job())]
    options = (*OPTIONS, "--wait=false", "--kubeconfig", config)
    assert await run(monkeypatch, "move", "train", *words, *options) == code
    assert len(writes(server)) == (0 if code else 1)
    assert ("would have 4100 characters, and may have 4096: name fewer clusters" in capsys.readouterr().err) == bool(
        code
    )


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
        pytest.param(
            poll(0),
            "The timeout has passed, and no worker is in east, but the controller may not have observed the move yet. "
            f"{HINT}",
            id="the timeout without workers",
        ),
        pytest.param(
            [],
            f"The timeout has passed, and whether workers remain in east is not known. {HINT}",
            id="the timeout without an answer",
        ),
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
    """The timeout passes after the last scripted answer."""
    server.lists = [*start("east"), *polls]
    server.lists.pop(2)  # nothing is written
    words = ("move", "train", "--from", "east", "--timeout=1h", *OPTIONS, "--kubeconfig", config)
    assert await run_until_silent(monkeypatch, server, *words) == 1
    assert capsys.readouterr().err == message.replace("CONFIG", str(config))


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
            f"You may not change RayJob demo/train; {ALLOW}",
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
