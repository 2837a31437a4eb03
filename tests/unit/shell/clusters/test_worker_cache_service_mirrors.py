"""Watching and writing heads' mirrors: only in clusters that have them, with one write for all workers of a head."""

import asyncio
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.admission import condition_patches
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import Login, LoginReader
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.shell.planning.snapshot import Snapshot
from adapter.shell.write.create_object import NAME_TAKEN
from adapter.shell.write.pod_writer import write_head_mirror
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, kubeconfig, refuses, says
from tests.unit.builders import at
from tests.unit.stores import Sight, make_member

WORK = parse_workload(builders.make_workload())
LABELS = {names.MANAGER_LABEL: "mgr", names.CLUSTER_LABEL: "east"}


class _OneLogin:
    async def read_login(self, *_: object) -> Login:
        return Login("Secret east", yaml.safe_dump(kubeconfig("http://127.0.0.1:1")))

    def forget_cluster(self, _: str) -> None:
        pass


def _kinds(member: WorkerClusterCache) -> set[str]:
    return {row.resource.plural for row in member._watched_kinds}


async def test_a_cluster_that_starts_mirroring_is_reconnected() -> None:
    """The watched kinds are fixed when the cluster is connected; other clusters need no rights to mirrors."""
    logins = cast(LoginReader, _OneLogin())
    async with asyncio.TaskGroup() as tasks:
        fleet = Fleet(tasks, "mgr", lambda: True)
        await fleet.reconcile("east", builders.make_worker_cluster("east"), logins)
        first = fleet.caches()["east"]
        assert not _kinds(first) & {"services", "endpointslices"}
        await asyncio.sleep(0)  # its task has begun, so that it closes its connections
        head = {"address": "ServiceMirror"}
        await fleet.reconcile("east", builders.make_worker_cluster("east", head=head), logins)
        second = fleet.caches()["east"]
        assert second is not first and _kinds(second) >= {"services", "endpointslices"}
        await asyncio.sleep(0)
        await fleet.reconcile("east", builders.make_worker_cluster("east", head=head, zone="z"), logins)
        assert fleet.caches()["east"] is second and second.spec.zone == "z"
        await fleet.reconcile("east", None, logins)


def service(version: str = "", **metadata: Any) -> Raw:
    known = {"resourceVersion": version} if version else {}
    meta = {"namespace": "demo", "name": "a-head-svc", "labels": LABELS, **known, **metadata}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta}


async def _write(server: Server, body: Raw, *, seen: Raw | None = None) -> WorkerClusterCache:
    member = make_member("east", 1, head={"address": "ServiceMirror"})
    if seen:
        member.services.put(seen)
    async with apiserver.connected(server.url) as client:
        member.client = client
        await write_head_mirror(member, body)
    return member


async def test_a_missing_mirror_is_created(server: Server) -> None:
    server.lists = [says(service("5"))]
    member = await _write(server, service())
    assert [(asked.method, asked.path) for asked in server.asked] == [("POST", resources.SERVICES.path("demo"))]
    assert member.services.get(("demo", "a-head-svc")) == service("5")


async def test_an_existing_mirror_is_changed_by_its_observed_version(server: Server) -> None:
    server.lists = [says(service("6"))]
    await _write(server, service("5"), seen=service("5"))
    (asked,) = server.asked
    assert (asked.method, asked.body["metadata"]["resourceVersion"]) == ("PATCH", "5")


@pytest.mark.parametrize("body", [service(), service("5")], ids=["made", "changed"])
async def test_a_mirror_written_for_another_worker_is_not_written_again(server: Server, body: Raw) -> None:
    await _write(server, body, seen=service("6"))
    assert server.asked == []


async def test_an_owner_is_added_to_concurrent_ones(server: Server) -> None:
    server.lists = [says(service("7"))]
    one, other = ({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name} for name in ("a1", "a2"))
    await _write(server, service("5", ownerReferences=[other]), seen=service("6", ownerReferences=[one]))
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PATCH", resources.SERVICES.path("demo", "a-head-svc"))


async def test_a_concurrent_deletion_is_no_denial(server: Server) -> None:
    server.lists = [refuses(404, "NotFound")]
    await _write(server, service("5"), seen=service("5"))


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="an object of another owner"),
        pytest.param(
            {**LABELS, names.CLUSTER_LABEL: "west"}, id="an object of this manager for another name of the cluster"
        ),
    ],
)
async def test_an_object_of_another_owner_is_not_changed(server: Server, labels: Raw) -> None:
    server.lists = [refuses(409, "AlreadyExists"), says(service("3", labels=labels))]
    with pytest.raises(ApiError, match=r"services demo/a-head-svc exists there and is not ours") as refusal:
        await _write(server, service())
    assert refusal.value.reason == NAME_TAKEN
    assert [asked.method for asked in server.asked] == ["POST", "GET"]


class _OldAccount(Server):
    """A worker cluster with nothing in it, whose account was made before there was a ServiceMirror."""

    may = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await apiserver.silence(self)(request)
        if "fieldSelector" in request.query:
            return await super().handle(request)
        if request.path.rpartition("/")[2] in ("services", "endpointslices") and not self.may:
            return await refuses(403, message=f"{request.path} is forbidden")(request)
        return await says({"metadata": {"resourceVersion": "1"}, "items": []})(request)


@apiserver.hurried
async def test_a_cluster_with_unreadable_mirrors_is_reachable_and_gets_no_new_workers() -> None:
    """Workers that run there must not be given up, and orphans there must be deleted."""
    sight, spec = Sight({"east": 4}), builders.make_worker_cluster("east", head={"address": "ServiceMirror"})
    account = _OldAccount()
    async with apiserver.serving(account) as server, apiserver.connected(server.url) as client:
        heard = asyncio.Event()
        tell = WorkerClusterListeners(on_contact=lambda _: heard.set())
        member = sight.fleet.caches()["east"] = WorkerClusterCache(
            "east", specs.parse_worker_cluster(spec), client, "mgr", tell
        )
        following = asyncio.create_task(member.run())
        async with asyncio.timeout(apiserver.PATIENCE):
            await member.first_reached.wait()
        why = (
            "heads cannot be mirrored there: the kubeconfig's account lacks a right "
            "(/apis/discovery.k8s.io/v1/endpointslices is forbidden); apply kustomize/overlays/worker there"
        )
        assert (member.unreachable_reason, member.unmirrored_reason) == ("", why)
        (candidate,) = Snapshot(
            sight.manager,
            sight.fleet,
            sight.facts.policies,
            sight.facts.targets,
            sight.facts.reservations,
            sight.facts.dry_run_answers,
        ).candidates(["east"], {}, builders.NAMESPACE)
        assert candidate.problem == why
        with pytest.raises(ApiError, match="heads cannot be mirrored there"):
            await write_head_mirror(member, service())
        account.may = True
        async with asyncio.timeout(apiserver.PATIENCE):
            while member.unmirrored_reason:
                heard.clear()
                await heard.wait()
        assert not member.unreachable_reason
        following.cancel()


def test_unreadable_mirrors_are_reported_on_the_worker_cluster() -> None:
    patch = condition_patches.cluster_condition(
        builders.make_worker_cluster(), "", "", True, at(5), lack="No new workers go there."
    )
    assert patch
    (told,) = patch["status"]["conditions"]
    assert (told["status"], told["reason"], told["message"]) == ("True", "HeadsNotMirrored", "No new workers go there.")
