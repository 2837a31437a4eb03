"""Which jobs are labelled, when, and by how many requests. The server answers from a script;
tests/integration/test_job_labels.py uses a real one."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter import names
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.write import job_labels
from adapter.shell.write.job_labels import JobLabels
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import NAMESPACE, make_meta, make_placement, make_ray_cluster, make_workload
from tests.unit.stores import Sight, fill

GRANTED, DENIED = says({"status": {"allowed": True}}, 201), says({"status": {"allowed": False}}, 201)
RIGHTS = [GRANTED] * 3
WORK: Any = make_workload()
PLACED = make_placement(WORK, placedRound=1)
Paths = list[tuple[str, str | None]]
BOTH: Paths = [("rayjobs/train", "east_west"), ("rayclusters/train-abc", "east_west")]


def job(value: str = "", **status: Any) -> Any:
    labels = {names.CLUSTERS_LABEL: value} if value else {}
    metadata = make_meta("train", uid="uid-of-job", labels=labels, resourceVersion="2" if value else "1")
    return {"metadata": metadata, "spec": {}, "status": status}


def ray_cluster(value: str = "", *, service: bool = False, name: str = "train-abc") -> Any:
    raw: Any = make_ray_cluster(name=name)
    raw["metadata"] |= {
        "labels": {names.CLUSTERS_LABEL: value} if value else {},
        "resourceVersion": "2" if value else "1",
    }
    if service:
        raw["metadata"]["uid"] = "uid-of-job" if name == "train-abc" else f"uid-of-{name}"
        owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": "u-1", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
    return raw


@asynccontextmanager
async def labelling(
    *answers: Answer, placed: Iterable[Any] = (PLACED,)
) -> AsyncIterator[tuple[JobLabels, Sight, Server]]:
    """Labels of a manager with this Placement; its server has granted the right before it gives these answers."""
    server, sight = Server(lists=[*RIGHTS, *answers]), Sight({"east": 9, "west": 9})
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, *placed)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        yield JobLabels(sight.manager), sight, server


def written(server: Server) -> Paths:
    """The path of each patch, with the label it writes."""
    patches = [asked for asked in server.asked if asked.method == "PATCH"]
    assert all(asked.body["metadata"].keys() == {"uid", "labels"} for asked in patches)
    return [
        (
            asked.path.split("/")[-2] + "/" + asked.path.split("/")[-1],
            asked.body["metadata"]["labels"][names.CLUSTERS_LABEL],
        )
        for asked in patches
    ]


@pytest.fixture(autouse=True)
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")


@pytest.mark.parametrize(
    ("ray_job", "placed", "patches"),
    [
        pytest.param(job(), [PLACED], BOTH, id="a job that was placed"),
        pytest.param(job("east"), [PLACED], BOTH, id="one that has moved"),
        pytest.param(job("east_west"), [PLACED], [("rayclusters/train-abc", "east_west")], id="one that is labelled"),
        pytest.param(job("east"), [], [("rayjobs/train", None)], id="one that waits again"),
        pytest.param(job("east", jobDeploymentStatus="Complete"), [], [], id="one that has ended"),
        pytest.param(job(), [], [], id="a job that is not ours"),
    ],
)  # fmt: skip
async def test_a_job_and_its_ray_cluster_are_labelled(ray_job: Any, placed: list[Any], patches: Paths) -> None:
    answers = [says(ray_job)] * len(patches)
    async with labelling(*answers, placed=placed) as (labels, sight, server):
        fill(sight.manager.ray_jobs, ray_job)
        fill(sight.manager.ray_clusters, ray_cluster())
        await labels.look()
    assert written(server) == patches


async def test_a_service_has_the_clusters_of_all_its_ray_clusters() -> None:
    async with labelling(says(job()), says(ray_cluster("east_west", service=True)), says(job())) as (
        labels,
        sight,
        server,
    ):
        fill(sight.manager.ray_clusters, ray_cluster(service=True), ray_cluster(service=True, name="next"))
        await labels.look()
        assert written(server) == [("rayservices/chat", "east_west"), ("rayclusters/train-abc", "east_west")]
        await labels.look()
        fill(sight.manager.placements)
        fill(sight.manager.ray_clusters, ray_cluster(service=True, name="next"))
        await labels.look()
    assert written(server)[2:] == [("rayservices/chat", None)]


async def test_without_the_right_nothing_is_written_and_it_is_asked_for_once_a_minute() -> None:
    server, sight = Server(lists=[DENIED]), Sight({"east": 9})
    fill(sight.manager.ray_jobs, job("east"))
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        labels = JobLabels(sight.manager)
        await labels.look()
        await labels.look()
    assert [asked.body["spec"]["resourceAttributes"] for asked in server.asked] == [
        {"group": "ray.io", "resource": "rayjobs", "subresource": "", "namespace": "", "verb": "patch"}
    ]


async def test_a_denied_label_holds_up_no_other_and_is_not_written_at_each_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "adapter.shell.write.job_labels")
    async with labelling(refuses(403, message="no labels"), says(ray_cluster("east_west"))) as (labels, sight, server):
        fill(sight.manager.ray_jobs, job())
        fill(sight.manager.ray_clusters, ray_cluster())
        await labels.look()
        await labels.look()
    assert [path for path, _ in written(server)] == ["rayjobs/train", "rayclusters/train-abc"]
    assert "rayjobs demo/train: its label is not written: 403" in caplog.text


@pytest.mark.parametrize("status", [404, 409])
async def test_a_job_that_is_gone_is_tried_once_and_not_logged(status: int, caplog: pytest.LogCaptureFixture) -> None:
    async with labelling(refuses(status, "Gone")) as (labels, sight, server):
        fill(sight.manager.ray_jobs, job())
        await labels.look()
        await labels.look()
    assert len(written(server)) == 1 and not caplog.text


async def test_namespaces_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant with many jobs delays another tenant's label by one request."""
    monkeypatch.setattr(job_labels, "LABELS_IN_ROUND", 2)
    async with labelling(*[says(job())] * 2) as (labels, sight, server):
        many = [{"metadata": make_meta(f"j{n}", labels={names.CLUSTERS_LABEL: "x"}), "spec": {}} for n in range(9)]
        other = {"metadata": make_meta("one", namespace="other", labels={names.CLUSTERS_LABEL: "x"}), "spec": {}}
        fill(sight.manager.ray_jobs, *many, other)
        await labels.look()
    assert [asked.path.split("/")[5] for asked in server.asked if asked.method == "PATCH"] == [NAMESPACE, "other"]


async def test_nothing_is_decided_on_an_incomplete_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with labelling() as (labels, sight, server):
        fill(sight.manager.ray_jobs, job("east"))
        fill(sight.manager.placements)
        monkeypatch.setattr(type(sight.manager.namespace_shares), "is_complete", lambda *_: False)
        await labels.look()
    assert written(server) == []
