"""`rayspan check` from its user's view: its requests, output and exit codes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from adapter import names
from adapter.cli import check
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import format_micro_time
from tests.unit.apiserver import Answer, Server, lists, refuses, says
from tests.unit.builders import make_check, make_condition, make_policy, make_worker_cluster
from tests.unit.verbs import run

KUEUE, OURS = "/apis/kueue.x-k8s.io/v1beta2", "/apis/rayspan.dev/v1alpha1"
QUEUE = {"metadata": {"name": "q"}, "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "rayspan"}]}}}
CORDONED = "WorkerCluster {0} is cordoned; `kubectl rayspan uncordon {0}` lets new workers go there again.\n"
UNREAD = "You may not read clusterqueues here: quota is not shown.\n"
NO_KIND = "This cluster does not serve {}: install Kueue and Rayspan in it, or name the manager with --context.\n"


def cluster(name: str, **spec: bool) -> Raw:
    return make_worker_cluster(name, conditions=[make_condition("Connected", reason="Connected")], **spec)


def lacking(name: str) -> Raw:
    missing = make_condition("NamesExist", status=False, reason="NamesMissing", message="No account.")
    return make_worker_cluster(name, conditions=[make_condition("Connected", reason="Connected"), missing])


def outdated(name: str) -> Raw:
    old = make_condition("RelayCurrent", status=False, reason="RelayKeyChanged", message="Heads of a refuse workers.")
    return make_worker_cluster(name, conditions=[make_condition("Connected", reason="Connected"), old])


def lease(age: float = 0.0) -> Answer:
    """A Lease that was renewed this many seconds before each request."""

    async def answer(asked: web.Request) -> web.StreamResponse:
        return await says(_renewed(age))(asked)

    return answer


def _renewed(age: float) -> Raw:
    renewed = format_micro_time(datetime.now(UTC) - timedelta(seconds=age))
    return {"metadata": {"name": names.LEASE}, "spec": {"holderIdentity": "me", "renewTime": renewed}}


def answers(*clusters: Raw, **other: Answer) -> list[Answer]:
    """The API server's answers, in the order in which the kinds are read."""
    ours = make_check(conditions=[make_condition(names.ACTIVE, reason="Ready")])
    found = {
        "workerclusters": lists(1, clusters),
        "clusterqueues": lists(1, [QUEUE]),
        "admissionchecks": lists(1, [ours]),
        "dispatchpolicies": lists(1, [make_policy()]),
        "lease": lease(),
    }
    return [*(found | other).values()]


EAST, WEST = cluster("east"), cluster("west")


@pytest.mark.parametrize(
    ("said", "code", "printed"),
    [
        pytest.param(answers(EAST, WEST), 0, "Jobs can be dispatched.\n", id="all clusters are ready"),
        pytest.param(
            answers(lacking("east"), WEST),
            0,
            "Jobs can be dispatched.\nThe last preflight found: No account. Then run `kubectl rayspan preflight` "
            "again.\n",
            id="a preflight missed what a cluster names",
        ),
        pytest.param(
            answers(outdated("east"), WEST),
            0,
            "Jobs can be dispatched.\nWorkerCluster east: Heads of a refuse workers.\n",
            id="a job runs with another key of the relay",
        ),
        pytest.param(
            answers(EAST, cluster("west", cordoned=True)),
            0,
            f"Jobs can be dispatched.\n{CORDONED.format('west')}",
            id="one cluster is cordoned",
        ),
        pytest.param(
            answers(cluster("east", cordoned=True), cluster("west", cordoned=True)),
            3,
            f"Nothing can be dispatched.\n{CORDONED.format('east')}{CORDONED.format('west')}",
            id="all clusters are cordoned",
        ),
        pytest.param(
            answers(EAST, WEST, clusterqueues=refuses(403)),
            1,
            f"Whether jobs can be dispatched is not known.\n{UNREAD}",
            id="a right is missing",
        ),
        pytest.param(
            answers(EAST, WEST, lease=refuses(403)),
            0,
            "Jobs can be dispatched.\nYou may not read leases here: whether a controller leads is not known.\n",
            id="the Lease may not be read",
        ),
        pytest.param(
            answers(workerclusters=refuses(404, "NotFound"), dispatchpolicies=refuses(404, "NotFound")),
            3,
            f"Nothing can be dispatched.\n{NO_KIND.format('dispatchpolicies')}{NO_KIND.format('workerclusters')}",
            id="a cluster that is no manager",
        ),
    ],
)
async def test_check_reports_whether_jobs_can_be_dispatched(
    said: list[Answer],
    code: int,
    printed: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [*said]
    assert await run(monkeypatch, "check", "--kubeconfig", config) == code
    assert capsys.readouterr() == (printed, "")
    assert [one.path for one in server.asked] == [
        f"{OURS}/workerclusters",
        f"{KUEUE}/clusterqueues",
        f"{KUEUE}/admissionchecks",
        f"{OURS}/dispatchpolicies",
        f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/{names.LEASE}",
    ]
    assert {one.method for one in server.asked} == {"GET"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(says(_renewed(61)), id="a Lease that is not renewed"),
        pytest.param(refuses(404, "NotFound"), id="no Lease"),
    ],
)
async def test_without_a_controller_nothing_is_dispatched(
    said: Answer, server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The conditions of an earlier controller do not count. A Lease that seems old is read again."""
    monkeypatch.setattr(check, "PAUSE_SECONDS", 0.0)
    server.lists = [*answers(EAST, WEST, lease=said), *[said] * check.LEASE_READS]
    assert await run(monkeypatch, "check", "-o", "json", "--kubeconfig", config) == 3
    found = json.loads(capsys.readouterr().out)
    (obstacle,) = found.pop("obstacles")
    assert obstacle.startswith("No controller leads") and found == {"dispatches": False, "notes": []}


async def test_a_leader_is_recognized_by_its_renewals_and_not_by_this_machines_clock(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "PAUSE_SECONDS", 0.0)
    server.lists = [*answers(EAST, WEST, lease=says(_renewed(300))), says(_renewed(298))]
    assert await run(monkeypatch, "check", "--kubeconfig", config) == 0
    assert capsys.readouterr() == ("Jobs can be dispatched.\n", "")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            refuses(401),
            ("The manager cluster does not accept your credentials: log in again, or check your kubeconfig."),
        ),
        (refuses(429, "TooManyRequests", "Ask again."), "Ask again."),
    ],
)
async def test_trouble_is_one_sentence(
    said: Answer,
    sentence: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [said]
    assert await run(monkeypatch, "check", "--kubeconfig", config) == 1
    assert capsys.readouterr() == ("", f"{sentence}\n")
