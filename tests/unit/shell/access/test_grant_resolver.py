"""What the manager must contain before a grant leads to a worker cluster, and the messages otherwise."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter import membership, names
from adapter.access.access_request import AccessRequest
from adapter.access.grant import EXEC, LOG, PORT_FORWARD, Grant, manifest
from adapter.objects.unstructured import Raw, format_time
from adapter.shell.access.grant_resolver import AccessRefused, GrantResolver
from adapter.shell.shipped_policies import access_policy
from tests.unit.apiserver import Answer, Server, connected, kubeconfig, refuses, says, serving
from tests.unit.stores import put_ahead

GRANT = Grant(
    "default", "kubectl-1", "u-g", "worker-a", "u-1", LOG, "", (),
    stdin=False, tty=False, key_hash="", created=datetime.now(UTC),
)  # fmt: skip
SYSTEM = {"metadata": {"name": "kube-system", "uid": "m"}}


def worker_cluster(**source: Raw) -> Raw:
    return {"metadata": {"name": "east"}, "spec": {"source": source}}


KEY = "k" * 43
ASKED = AccessRequest("default", "kubectl-1", KEY, LOG, "worker-a")
POD = {"metadata": {"namespace": "default", "name": "worker-a", "uid": "u-1"}}


def at(seconds_ago: float) -> str:
    return format_time(datetime.now(UTC) - timedelta(seconds=seconds_ago))


def granted(seconds_ago: float = 10) -> Raw:
    made = manifest(POD, LOG, KEY)
    return {
        **made,
        "metadata": {**made["metadata"], "name": "kubectl-1", "uid": "u-g", "creationTimestamp": at(seconds_ago)},
    }


def judging(seconds_ago: float = 60) -> list[Answer]:
    """The shipped policy and its binding, by the path: both are requested at the same time."""
    shipped = access_policy()

    async def answer(request: web.Request) -> web.StreamResponse:
        spec = shipped.binding if "validatingadmissionpolicybindings" in request.path else shipped.policy
        return await says({"metadata": {"creationTimestamp": at(seconds_ago)}, "spec": spec})(request)

    return [answer] * 2


async def test_a_validated_grant_allows_access() -> None:
    answers = [says(granted()), *judging()]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        assert (await GrantResolver(client).read_grant(ASKED)).pod == "worker-a"


async def test_a_grant_older_than_the_policy_allows_no_access() -> None:
    """A user without the right may have created it before the policy existed."""
    answers = [says(granted(60)), *judging(30)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused, match="This WorkerAccess was created before"):
            await GrantResolver(client).read_grant(ASKED)


@pytest.mark.parametrize("found", [says(granted()), refuses(404)], ids=["another key", "no grant"])
async def test_a_missing_grant_costs_one_request(found: Answer) -> None:
    asked = replace(ASKED, key="j" * 43)
    async with serving(Server(lists=[found, *judging()])) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused, match="There is no WorkerAccess of this name that matches this key"):
            await GrantResolver(client).read_grant(asked)
        assert len(server.asked) == 1


@pytest.mark.parametrize("slow", ["API server", "node"])
async def test_a_grant_is_over_by_the_faster_of_two_clocks(slow: str) -> None:
    """One of them may be wrong: a grant must not be valid for longer than its lifetime."""
    answers = [says(granted(360 if slow == "API server" else 0)), *judging(3600)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        put_ahead(client.clock, -300 if slow == "API server" else 360)
        with pytest.raises(AccessRefused, match="There is no WorkerAccess of this name that matches this key"):
            await GrantResolver(client).read_grant(ASKED)


PROFILED = worker_cluster(clusterProfileRef={"name": "east", "namespace": "fleet"})


async def test_a_forbidden_object_on_the_way_to_a_cluster_is_named() -> None:
    """Whatever it is: a Secret, a ClusterProfile or a MultiKueueCluster."""
    said = 'clusterprofiles.multicluster.x-k8s.io "east" is forbidden: User "a" cannot get resource'
    answers = [says(SYSTEM), says(PROFILED), refuses(403, message=said)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused) as told:
            async with GrantResolver(client).worker_cluster_client(GRANT, "east"):
                pass
    assert told.value.refusal.message == (
        f"east cannot be reached: the manager does not show {names.ACCESS_ACCOUNT} what leads there "
        f"(403 Forbidden: {said}); an administrator of the manager applies kustomize/components/worker-access again, "
        "and for a MultiKueueCluster gives it that right (docs/logs.md)."
    )


MANAGER_ID = membership.cluster_identity_of(SYSTEM)
REMOTE_LABELS = {names.MANAGER_LABEL: MANAGER_ID, names.POD_UID_LABEL: "u-1"}
REMOTE_POD = {"metadata": {"namespace": "default", "name": "worker-a", "labels": REMOTE_LABELS}}


@asynccontextmanager
async def resolver_of(worker: Server, *manager_answers: Answer, **status: Any) -> AsyncIterator[GrantResolver]:
    """A resolver whose WorkerCluster east has this status and leads to `worker`."""
    async with serving(worker):
        login = base64.b64encode(yaml.safe_dump(kubeconfig(worker.url)).encode()).decode()
        secret = {"metadata": {"name": "east"}, "data": {"kubeconfig": login}}
        east = {**worker_cluster(kubeConfig={"secretRef": {"name": "east"}}), "status": status}
        manager = Server(lists=[says(SYSTEM), says(east), says(secret), *manager_answers])
        async with serving(manager), connected(manager.url) as client:
            yield GrantResolver(client)


async def test_nothing_is_read_from_a_cluster_that_is_not_the_one_on_record() -> None:
    """It answers with the labels of a remote pod, which its administrator may know."""
    worker = Server(lists=[says(REMOTE_POD)], uid="another")
    async with resolver_of(worker, clusterUID="first") as resolver:
        with pytest.raises(AccessRefused, match="leads to a different cluster than before"):
            async with resolver.worker_cluster_client(GRANT, "east"):
                pass
    assert worker.asked == [] and worker.proved == 1


async def test_a_cluster_that_the_controller_refuses_is_not_connected() -> None:
    worker = Server()
    mismatch = {"type": "Connected", "status": "False", "reason": "IdentityMismatch"}
    async with resolver_of(worker, clusterUID="first", conditions=[mismatch]) as resolver:
        with pytest.raises(AccessRefused, match="condition Connected of WorkerCluster east is IdentityMismatch"):
            async with resolver.worker_cluster_client(GRANT, "east"):
                pass
    assert (worker.asked, worker.proved) == ([], 0)


@pytest.mark.parametrize(
    ("subresource", "claim", "refused"),
    [
        pytest.param(EXEC, [says({"spec": {"holderIdentity": "original"}})], True, id="a clone's command"),
        pytest.param(PORT_FORWARD, [says({"spec": {"holderIdentity": "original"}})], True, id="a clone's port"),
        pytest.param(EXEC, [says({"spec": {"holderIdentity": "leader"}})], False, id="a command of the manager"),
        pytest.param(EXEC, [refuses(404)], False, id="a command while there is no claim"),
        pytest.param(EXEC, [refuses(403)], False, id="a command where no claim can be held"),
        pytest.param(LOG, [], False, id="a log needs no claim"),
    ],
)
async def test_a_clone_of_the_manager_runs_no_command(subresource: str, claim: list[Answer], refused: bool) -> None:
    worker = Server(lists=[*claim, says(REMOTE_POD)], uid="first")
    leader = says({"spec": {"holderIdentity": "leader"}})
    async with resolver_of(worker, leader, clusterUID="first") as resolver:
        asked = replace(GRANT, subresource=subresource)
        with pytest.raises(AccessRefused, match="is held by original") if refused else nullcontext():
            async with resolver.worker_cluster_client(asked, "east") as client:
                assert client.cluster == "east"
