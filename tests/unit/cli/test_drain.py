"""`rayspan cordon`, `uncordon` and `drain` from their user's view: writes, output and exit codes."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapter.cli import remaining_watch
from adapter.objects.unstructured import Raw
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import NAMESPACE, make_pod
from tests.unit.verbs import run, run_until_silent

PATH = "/apis/rayspan.dev/v1alpha1/workerclusters/east"
GOES_ON = (
    "east continues to drain; `kubectl rayspan drain east` watches again, and `kubectl "
    "rayspan uncordon east` stops it.\n"
)
UNSEEN = "the controller has not observed the drain yet: see `kubectl -n rayspan-system get pods`"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remaining_watch, "PAUSE_SECONDS", 0.01)


def cluster(*, seen: bool = True, **spec: Any) -> Raw:
    connected = {"type": "Connected", "status": "True", "observedGeneration": 4 if seen else 3}
    meta = {"name": "east", "generation": 4}
    return {"metadata": meta, "spec": spec, "status": {"conditions": [connected]}}


def pods(count: int) -> Raw:
    labels = {"rayspan.dev/placement": "train", "rayspan.dev/cluster": "east"}
    found = [{"namespace": "demo", "uid": f"u{number}", "labels": labels} for number in range(count)]
    return {"kind": "PodList", "items": [{"metadata": one, "status": {"phase": "Running"}} for one in found]}


def placements(reason: str = "") -> Raw:
    spec = {"job": {"kind": "RayJob", "name": "pi"}, "shares": []}
    meta = {"namespace": "demo", "name": "train"}
    found = {"metadata": meta, "spec": spec, "status": {"state": "Placed", "reason": reason}}
    return {"kind": "PlacementList", "items": [found]}


def look(count: int, reason: str = "", new: Raw | None = None, **spec: Any) -> list[Answer]:
    """The answers for one look at a draining cluster; `new` are the pods in which no cluster is written yet."""
    found = says(cluster(**({"draining": True} | spec)))
    return [found, says(new or pods(0)), says(pods(count)), says(placements(reason))]


# --- cordon and uncordon ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "before", "written", "said"),
    [
        ("cordon", {}, {"cordoned": True}, "cordoned"),
        ("cordon", {"cordoned": False, "draining": True}, {"cordoned": True}, "cordoned"),
        ("cordon", {"cordoned": True}, None, "already cordoned"),
        ("uncordon", {"cordoned": True}, {"cordoned": False, "draining": False}, "uncordoned"),
        ("uncordon", {"draining": True}, {"cordoned": False, "draining": False}, "uncordoned"),
        ("uncordon", {}, None, "already uncordoned"),
    ],
)
async def test_it_writes_only_changes_and_reports_them(
    verb: str,
    before: Raw,
    written: Raw | None,
    said: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [says(cluster(**before)), says(cluster())]
    assert await run(monkeypatch, verb, "east", "--kubeconfig", config) == 0
    assert capsys.readouterr() == (f"workercluster/east {said}\n", "")
    asked, *wrote = server.asked
    assert (asked.method, asked.path) == ("GET", PATH)
    assert asked.headers["Authorization"] == f"Bearer {apiserver.TOKEN}"
    wanted = [] if written is None else [("PATCH", PATH, {"spec": written})]
    assert [(one.method, one.path, one.body) for one in wrote] == wanted


FORBIDDEN = 'workerclusters.rayspan.dev "east" is forbidden: User "jane" cannot patch resource "workerclusters"'


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            refuses(404, "NotFound", 'workerclusters.rayspan.dev "east" not found'),
            "There is no WorkerCluster east; `kubectl get workerclusters` lists those that exist.",
        ),
        (
            refuses(404, "NotFound", "the server could not find the requested resource"),
            "There are no WorkerClusters: Rayspan is not installed in this cluster.",
        ),
        (
            refuses(403, "Forbidden", FORBIDDEN),
            (
                "You may not do this here; an administrator of the manager cluster can allow it with "
                "`kubectl create clusterrolebinding rayspan-drain --clusterrole=rayspan-drain "
                "--user=jane`."
            ),
        ),
        (
            refuses(401, "Unauthorized"),
            ("The manager cluster does not accept your credentials: log in again, or check your kubeconfig."),
        ),
        (refuses(500, "InternalError", "etcd is away."), "etcd is away."),
        (
            apiserver.text(apiserver.PAGE),
            "The manager cluster cannot be reached: what answers there is no Kubernetes API server",
        ),
    ],
)
async def test_trouble_is_one_sentence(
    verb: str,
    answer: Answer,
    sentence: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [answer]
    assert await run(monkeypatch, verb, "east", "--kubeconfig", config) == 1
    assert capsys.readouterr() == ("", f"{sentence}\n")


@pytest.mark.parametrize(
    "words",
    [["cordon"], ["cordon", "east", "west"], ["drain", "east", "--timeout", "soon"], ["drain", "east", "--wait=maybe"]],
    ids=" ".join,
)
async def test_a_wrong_command_line_makes_no_request(
    words: list[str], server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(monkeypatch, *words, "--kubeconfig", config) == 2
    said = capsys.readouterr().err
    assert "soon" not in words or "'soon' is not a duration such as 30s, 5m or 1h30m" in said
    assert not server.asked


async def test_programs_read_the_remaining_workers_at_each_change(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says(cluster()), says(cluster()), *look(2), *look(2), *look(1, "no room."), *look(0)]
    assert await run(monkeypatch, "drain", "east", "-o", "json", "--kubeconfig", config) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [(one["workerCluster"], one["left"]) for one in lines] == [("east", 2), ("east", 1), ("east", 0)]
    assert lines[1]["jobs"] == [{"job": "RayJob demo/pi", "workers": 1, "reserved": 0, "reason": "no room."}]
    assert said.err == ""


# --- drain ------------------------------------------------------------------------------------------------------------


async def test_a_drain_reports_each_change_until_the_cluster_is_empty(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = [says(cluster()), says(cluster())]
    looks = [*look(2), *look(2), *look(2, "no room."), *look(1), *look(0)]
    server.lists = [*begin, *looks]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "workercluster/east draining",
        "RayJob demo/pi: 2 workers left",
        "RayJob demo/pi: 2 workers left; no room.",
        "RayJob demo/pi: 1 worker left",
        "RayJob demo/pi: no worker left",
        "workercluster/east drained",
    ]
    assert said.err == ""
    _, wrote, _, *listed, _ = server.asked[:6]
    assert (wrote.method, wrote.path, wrote.body) == ("PATCH", PATH, {"spec": {"draining": True}})
    selected = ["rayspan.dev/placement,!rayspan.dev/cluster", "rayspan.dev/cluster=east"]
    wanted = [("/api/v1/pods", {"limit": "100", "labelSelector": one}) for one in selected]
    assert [(one.path, one.query) for one in listed] == wanted


async def test_a_worker_without_a_status_from_its_remote_pod_counts_as_remaining(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a template slot and gets its label later; the second look finds it before and after that."""
    found = make_pod(uid="u0", placement="train", index="0", listed="east/1/role-workers/2")
    new, group = {"items": [found]}, {"name": "workers", "role": "role-workers", "count": 2}
    plan = placements()
    plan["items"][0]["metadata"]["namespace"] = NAMESPACE
    plan["items"][0]["spec"] |= {"shares": [{"cluster": "east", "groups": [group]}], "round": 1}
    first, second = look(0, new=new), look(1, new=new)
    first[3] = second[3] = says(plan)
    server.lists = [says(cluster(draining=True)), *first, *second, *look(0)]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "RayJob demo/pi: 1 worker left",
        "RayJob demo/pi: no worker left",
        "workercluster/east drained",
    ]


async def test_a_drain_in_progress_is_only_watched(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says(cluster(draining=True)), *look(0)]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 0
    assert capsys.readouterr().out == "workercluster/east already draining\nworkercluster/east drained\n"
    assert {asked.method for asked in server.asked} == {"GET"}


async def test_a_drain_need_not_be_watched(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says(cluster()), says(cluster())]
    assert await run(monkeypatch, "drain", "east", "--wait=false", "--kubeconfig", config) == 0
    assert capsys.readouterr() == ("workercluster/east draining\n", "")
    assert len(server.asked) == 2


async def test_a_drain_does_not_end_before_the_controller_has_observed_it(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controller may just have planned workers for the cluster."""
    unseen = [says(cluster(seen=False, draining=True)), *look(0)[1:]]
    server.lists = [says(cluster()), says(cluster()), *(unseen * 5), *look(1), *look(0)]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 0
    said = capsys.readouterr()
    assert said.err == f"No workers are left, but {UNSEEN} ...\n"
    assert said.out.splitlines()[1:] == [
        "RayJob demo/pi: 1 worker left",
        "RayJob demo/pi: no worker left",
        "workercluster/east drained",
    ]


async def test_an_unreachable_manager_is_reported_once(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        await apiserver.cut(request)
        return web.Response()

    away = [cut, refuses(503, "ServiceUnavailable", "no"), refuses(429, "TooManyRequests", "no")]
    server.lists = [says(cluster(draining=True)), *look(1), *away, *look(0)]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("The manager cluster cannot be reached: ")
    assert said.err.endswith("; trying again ...\n")
    assert said.out.endswith("workercluster/east drained\n")


async def test_stopping_the_drain_ends_the_watch(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = [says(cluster(draining=True)), *look(2, draining=False)]
    assert await run(monkeypatch, "drain", "east", "--kubeconfig", config) == 1
    assert capsys.readouterr().err == "Another client stopped the drain of east, and it still has 2 workers.\n"


async def test_deleting_the_cluster_ends_the_watch(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = refuses(404, "NotFound", 'workerclusters.rayspan.dev "east" not found')
    server.lists = [says(cluster(draining=True)), *look(2), gone]
    assert await run(monkeypatch, "drain", "east", "--timeout=10s", "--kubeconfig", config) == 1
    assert capsys.readouterr().err.startswith("There is no WorkerCluster east; ")


@pytest.mark.parametrize(("seen", "left"), [(True, "it still has 2 workers"), (False, UNSEEN)])
async def test_the_timeout_of_a_drain(
    seen: bool,
    left: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The timeout passes after the last scripted answer."""
    server.lists = [says(cluster(draining=True)), *look(2 if seen else 0, seen=seen)]
    assert await run_until_silent(monkeypatch, server, "drain", "east", "--timeout=1h", "--kubeconfig", config) == 1
    assert capsys.readouterr().err == f"The timeout has passed, and {left}. {GOES_ON}"


async def test_ctrl_c_stops_the_watch_and_says_that_the_drain_goes_on(server: Server, config: Path) -> None:
    """Runs the process, because only a main thread is interrupted."""
    server.lists = [says(cluster()), says(cluster()), *look(2)]
    words = ("-m", "adapter", "drain", "east", "--kubeconfig", str(config))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=pipe, stderr=pipe, preexec_fn=_heed_ctrl_c
    )
    assert process.stdout
    assert await process.stdout.readline() == b"workercluster/east draining\n"
    assert await process.stdout.readline() == b"RayJob demo/pi: 2 workers left\n"
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err.decode()) == (1, f"Stopped watching. {GOES_ON}")
    assert server.asked[1].body == {"spec": {"draining": True}}, "and nothing took it back"
    assert {asked.method for asked in server.asked[2:]} == {"GET"}


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
async def test_ctrl_c_before_any_write_is_one_word(verb: str, server: Server, config: Path) -> None:
    words = ("-m", "adapter", verb, "east", "--kubeconfig", str(config))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=pipe, stderr=pipe, preexec_fn=_heed_ctrl_c
    )
    await server.until(lambda: len(server.asked) == 1)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert (process.returncode, err.decode().splitlines()[-1]) == (130, "Interrupted.")
    assert "Traceback" not in err.decode()


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
async def test_an_invalid_name_is_reported(
    verb: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(monkeypatch, verb, "..", "--kubeconfig", config) == 1
    assert capsys.readouterr().err == "WorkerCluster ..: no object can have such a name.\n"


def _heed_ctrl_c() -> None:
    """Restores Ctrl-C as in a terminal: a background run ignores it, and child processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
def test_help_has_an_example_and_the_exit_codes(verb: str) -> None:
    words = [sys.executable, "-m", "adapter", verb, "--help"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"kubectl rayspan {verb} east\n" in text and "workercluster/east" in text and "exit code: 0" in text
