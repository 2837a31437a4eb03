"""The Secret that logs in to a worker cluster: ours or Kueue's, watched by its name and only while needed."""

import asyncio
import base64
import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from adapter import names
from adapter.objects import specs
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.clusters import login_objects
from adapter.shell.clusters import logins as logins_of
from adapter.shell.clusters.logins import LoginReader, read_login_once
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import kubeconfig, resources
from adapter.shell.kube.client import ApiError
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.reflector import FollowConfig, follow
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, event, holds, hurried, lists, refuses, says

OPTIONAL = ("multikueue_clusters", "multikueue_configs")
OURS = specs.parse_worker_cluster({"spec": {"source": {"kubeConfig": {"secretRef": {"name": "east"}}}}})
PROFILED = specs.parse_worker_cluster(
    {"spec": {"source": {"clusterProfileRef": {"name": "east", "namespace": "fleet"}}}}
)
THEIRS = specs.parse_worker_cluster({"spec": {"source": {"multiKueueClusterRef": {"name": "mk-east"}}}})


def secret(text: str | None, version: int = 1, namespace: str = names.KUEUE_NAMESPACE) -> Raw:
    data = {} if text is None else {names.KUBECONFIG_KEY: base64.b64encode(text.encode()).decode()}
    metadata = {"namespace": namespace, "name": "east", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "data": data}


def multikueue_cluster(location: str = "east", version: int = 1) -> Raw:
    metadata = {"name": "mk-east", "uid": "m", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"clusterSource": {"kubeConfig": {"location": location}}}}


def profile(server: str = "https://east", namespace: str = "fleet", version: int = 1) -> Raw:
    metadata = {"namespace": namespace, "name": "east", "uid": "p", "resourceVersion": str(version)}
    return {
        "metadata": metadata,
        "status": {"accessProviders": [{"name": "secretreader", "cluster": {"server": server}}]},
    }


def token(text: str, version: int = 1, namespace: str = names.SYSTEM_NAMESPACE) -> Raw:
    return secret(None, version, namespace) | {"data": {"token": base64.b64encode(text.encode()).decode()}}


def by_profile() -> Raw:
    return multikueue_cluster(version=2) | {"spec": {"clusterSource": {"clusterProfileRef": {"name": "east"}}}}


@dataclass
class Bench:
    server: Server
    manager: ManagerCache
    logins: LoginReader
    heard: list[str] = field(default_factory=list)

    async def text(self, spec: specs.WorkerCluster = THEIRS, name: str = "east") -> str:
        return (await self.logins.read_login(name, spec)).kubeconfig

    async def refusal(self, spec: specs.WorkerCluster = THEIRS) -> str:
        with pytest.raises((BadLogin, specs.InvalidSpec)) as error:
            await self.logins.read_login("east", spec)
        return str(error.value)


@asynccontextmanager
async def benched(*listed: Answer, watched: Answer | None = None, known: bool = True) -> AsyncIterator[Bench]:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = list(listed)
        server.watches = [watched] if watched else []
        heard: list[str] = []

        def hear(store: str, *_: object) -> None:
            heard.append(store)
            server.news.set()

        manager = ManagerCache(client)
        for name in ("secrets", *OPTIONAL):
            getattr(manager, name).set_handler(functools.partial(hear, name))
        if known:
            manager.multikueue_clusters.replace([multikueue_cluster()], "1")
        async with asyncio.TaskGroup() as tasks:
            bench = Bench(server, manager, LoginReader(tasks, manager), heard)
            yield bench
            bench.logins.forget_cluster("east")
            bench.logins.forget_cluster("twin")


@hurried
async def test_a_secret_of_ours_is_read_from_its_store() -> None:
    async with benched() as bench:
        assert await bench.refusal(OURS) == (
            "Secret east does not exist in rayspan-system; create it with a kubeconfig."
        )
        bench.manager.secrets.put(secret("ours", namespace=names.SYSTEM_NAMESPACE))
        assert await bench.text(OURS) == "ours"
        assert bench.server.asked == [], "Kueue's namespace is nobody's business here"


@hurried
async def test_a_secret_of_kueue_is_read_by_its_name() -> None:
    async with benched(lists(5, [secret("theirs")])) as bench:
        assert await bench.text() == "theirs"
        (asked,) = bench.server.of(watch=False)
        assert asked.path == "/api/v1/namespaces/kueue-system/secrets"
        assert asked.query["fieldSelector"] == "metadata.name=east"


@hurried
async def test_two_worker_clusters_share_one_watch_until_neither_needs_it() -> None:
    async with benched(lists(5, [secret("theirs")])) as bench:
        assert await bench.text() == await bench.text(name="twin") == "theirs"
        assert len(bench.server.of(watch=False)) == 1
        bench.logins.forget_cluster("east")
        bench.server.lists = []
        assert await bench.text(name="twin") == "theirs", "still followed"
        assert len(bench.server.of(watch=False)) == 1


def fed(server: Server, changes: asyncio.Queue[str]) -> Answer:
    """A watch whose events come from the queue."""

    async def then(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        while not server.closing.is_set():
            told = asyncio.ensure_future(changes.get())
            closing = asyncio.ensure_future(server.closing.wait())
            await asyncio.wait((told, closing), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                await response.write(told.result().encode())
            told.cancel()
            closing.cancel()
        return response

    return then


@hurried
async def test_a_new_kubeconfig_is_notified_and_read() -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with benched() as bench:
        bench.server.lists, bench.server.watches = [lists(5, [secret("old")])], [fed(bench.server, changes)]
        assert await bench.text() == "old"
        bench.heard.clear()
        changes.put_nowait(event("MODIFIED", secret("new", 6)))
        await bench.server.until(lambda: "secrets" in bench.heard)
        assert await bench.text() == "new"


@hurried
async def test_another_secret_is_followed_when_the_multikueuecluster_names_another() -> None:
    async with benched(lists(5, [secret("old")]), lists(6, [])) as bench:
        assert await bench.text() == "old"
        bench.manager.multikueue_clusters.put(multikueue_cluster("other", 2))
        assert await bench.refusal() == "Secret other does not exist in kueue-system; create it with a kubeconfig."
        assert [asked.query["fieldSelector"] for asked in bench.server.of(watch=False)] == [
            "metadata.name=east",
            "metadata.name=other",
        ]


@hurried
async def test_a_missing_right_is_reported_until_it_is_granted() -> None:
    async with benched(refuses(403), lists(5, [secret("theirs")])) as bench:
        assert await bench.refusal() == (
            "Secret east in kueue-system cannot be read: the controller has no right to it; "
            "name it in kustomize/components/multikueue, and apply that."
        )
        bench.heard.clear()
        await bench.server.until(lambda: "secrets" in bench.heard)
        assert await bench.text() == "theirs"


@hurried
async def test_a_failed_watch_is_reported_and_the_secret_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does it end the process, nor does a WorkerCluster wait for an answer that never comes."""
    before, broken = _met(), list[object]()

    async def breaks_once(what: FollowConfig) -> None:
        if broken:
            return await follow(what)
        broken.append(what)
        raise RuntimeError

    monkeypatch.setattr(login_objects, "follow", breaks_once)
    async with benched(lists(5, [secret("theirs")])) as bench, asyncio.timeout(apiserver.PATIENCE):
        assert "Secret east in kueue-system cannot be read: reading it broke; see the controller's log" in (
            await bench.refusal()
        )
        bench.heard.clear()
        await bench.server.until(lambda: "secrets" in bench.heard)
        assert await bench.text() == "theirs" and _met() == before + 1


def _met() -> float:
    return REGISTRY.get_sample_value("rayspan_task_failures_total", {"task": "logins"}) or 0.0


@hurried
async def test_a_revoked_right_keeps_the_cached_secret() -> None:
    """Kueue's admin may close its namespace for a while; running jobs shall not lose their cluster for it."""
    async with benched(lists(5, [secret("theirs")]), refuses(403), watched=refuses(403)) as bench:
        assert await bench.text() == "theirs"
        await bench.server.until(lambda: len(bench.server.of(watch=False)) > 1)
        assert await bench.text() == "theirs"


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param([], "Secret east does not exist in kueue-system; create it with a kubeconfig.", id="missing"),
        pytest.param([secret(None)], "Secret east in kueue-system has no key kubeconfig; add it.", id="another key"),
        pytest.param(
            [secret("x") | {"data": {names.KUBECONFIG_KEY: "no base64"}}],
            "Secret east in kueue-system: kubeconfig is not text; create it again.",
            id="no text",
        ),
    ],
)
def test_an_unusable_secret_is_reported(found: list[Raw], sentence: str) -> None:
    @hurried
    async def test() -> None:
        async with benched(lists(5, found)) as bench:
            assert await bench.refusal() == sentence

    test()


@hurried
async def test_a_manager_without_multikueue_is_reported_and_reads_no_secret() -> None:
    async with benched(known=False) as bench:
        bench.manager.unreadable_kinds[resources.MULTIKUEUE_CLUSTERS] = ApiError(404, "NotFound", "no such resource")
        assert "cannot read the MultiKueueClusters of the manager" in await bench.refusal()
        assert bench.server.asked == []


@hurried
async def test_a_deleted_multikueuecluster_is_reported_and_its_secret_dropped() -> None:
    async with benched(lists(5, [secret("theirs")])) as bench:
        assert await bench.text() == "theirs"
        bench.manager.multikueue_clusters.remove(multikueue_cluster(version=2))
        assert "names MultiKueueCluster mk-east, which does not exist" in await bench.refusal()
        bench.manager.multikueue_clusters.put(multikueue_cluster(version=3))
        bench.server.lists = [lists(9, [secret("again", 8)])]
        assert await bench.text() == "again", "read anew, not remembered"


# --- by a ClusterProfile ---------------------------------------------------------------------------------------------


def read(text: str) -> tuple[str, str]:
    """The server and the token of a kubeconfig."""
    made = json.loads(text)
    return made["clusters"][0]["cluster"]["server"], made["users"][0]["user"]["token"]


@hurried
async def test_a_profiles_address_and_the_token_beside_it_make_a_login() -> None:
    """And one that is renewed, either of them, is another login; what a cluster manager writes beside it is no news."""
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with benched(refuses(404, "NotFound", "no such resource"), lists(5, [])) as bench:

        async def told(found: Raw, kind: str = "MODIFIED") -> None:
            bench.heard.clear()
            changes.put_nowait(event(kind, found))
            await bench.server.until(lambda: "secrets" in bench.heard)

        bench.server.watches = [fed(bench.server, changes)]
        assert "cannot read ClusterProfile fleet/east (404 NotFound" in await bench.refusal(PROFILED)
        bench.heard.clear()
        await bench.server.until(lambda: "secrets" in bench.heard)
        assert "names ClusterProfile fleet/east, which does not exist" in await bench.refusal(PROFILED)
        await told(profile(version=6), "ADDED")
        assert "Secret east in rayspan-system, which must hold the token" in await bench.refusal(PROFILED)
        bench.manager.secrets.put(token("first"))
        assert read(await bench.text(PROFILED)) == ("https://east", "first")
        bench.manager.secrets.put(token("second", 2))
        assert read(await bench.text(PROFILED)) == ("https://east", "second")

        busy = profile(version=7)
        busy["status"]["conditions"] = [{"type": "ControlPlaneHealthy"}]
        changes.put_nowait(event("MODIFIED", busy))
        await told(profile("https://moved", version=8))
        assert bench.heard == ["secrets"], "the one of them that matters"
        assert read(await bench.text(PROFILED)) == ("https://moved", "second")
        (path,) = {one.path for one in bench.server.asked}
        assert path == "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles"
        assert {one.query["fieldSelector"] for one in bench.server.asked} == {"metadata.name=east"}


@hurried
async def test_an_unused_profile_is_not_watched_any_more() -> None:
    async with benched(lists(5, [profile()])) as bench:
        assert "which must hold the token" in await bench.refusal(PROFILED)
        bench.manager.secrets.put(secret("ours", namespace=names.SYSTEM_NAMESPACE))
        assert await bench.text(OURS) == "ours"
        bench.server.lists = [lists(9, [])]
        assert "which does not exist" in await bench.refusal(PROFILED), "read anew, not remembered"


@hurried
async def test_a_multikueueclusters_profile_is_in_kueues_namespace_and_so_is_its_secret() -> None:
    theirs = profile(namespace=names.KUEUE_NAMESPACE)
    async with benched(lists(5, [theirs]), lists(5, [token("theirs", namespace=names.KUEUE_NAMESPACE)])) as bench:
        bench.manager.multikueue_clusters.put(by_profile())
        assert read(await bench.text()) == ("https://east", "theirs")
        assert [(one.path, one.query["fieldSelector"]) for one in bench.server.of(watch=False)] == [
            ("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/kueue-system/clusterprofiles", "metadata.name=east"),
            ("/api/v1/namespaces/kueue-system/secrets", "metadata.name=east"),
        ]


@hurried
async def test_a_missing_profile_leads_to_no_read_of_a_kueue_secret() -> None:
    async with benched(lists(5, [])) as bench:
        bench.manager.multikueue_clusters.put(by_profile())
        assert await bench.refusal() == (
            "spec.source.multiKueueClusterRef: clusterProfileRef of MultiKueueCluster mk-east names "
            "ClusterProfile kueue-system/east, which does not exist; "
            "create it, or put a kubeconfig into a Secret, and name that in spec.source.kubeConfig."
        )
        assert len(bench.server.of(watch=False)) == 1


@hurried
async def test_an_invalid_profile_is_reported_without_its_secret() -> None:
    async with benched(lists(5, [profile("https://[")])) as bench:
        bench.manager.secrets.put(token("a-token"))
        login = await bench.logins.read_login("east", PROFILED)
        with pytest.raises(BadLogin) as error:
            await kubeconfig.login_of_text(login.kubeconfig)
        assert logins_of.unusable_message("east", login, error.value) == (
            "ClusterProfile fleet/east gives no usable cluster address: clusters[].cluster.server is no URL of an API "
            "server; write https://HOST:PORT; correct it in the cluster manager that writes status.accessProviders."
        )


def test_a_login_shows_no_kubeconfig() -> None:
    from adapter.shell.clusters.logins import Login

    assert "token" not in repr(Login("Secret east in kueue-system", "token: x"))


# --- a manager without these kinds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404], ids=["no right", "no such kind"])
def test_the_controller_starts_without_these_kinds_and_takes_them_when_they_come(status: int) -> None:
    """An incomplete cache allows no decision, but unused kinds are no part of it."""

    @hurried
    async def test() -> None:
        async with benched(known=False) as bench:
            given: list[str] = []

            async def answer(request: web.Request) -> web.StreamResponse:
                optional = request.path.rpartition("/")[2].startswith("multikueue")
                body = refuses(status) if optional and not given else lists(5)
                return await body(request)

            bench.server.lists = [answer] * 1000
            bench.server.watches = [holds(bench.server)] * 1000
            running = asyncio.create_task(bench.manager.run())
            try:
                async with asyncio.timeout(apiserver.PATIENCE):
                    await bench.manager.stores_filled.wait()
                assert set(bench.manager.unreadable_kinds) == {
                    resources.MULTIKUEUE_CLUSTERS,
                    resources.MULTIKUEUE_CONFIGS,
                }
                bench.heard.clear()
                given.append("now")
                await bench.server.until(lambda: set(OPTIONAL) <= set(bench.heard))
                assert not bench.manager.unreadable_kinds and bench.manager.multikueue_configs.synced
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    test()


# --- asked for once, by a user ---------------------------------------------------------------------------------------

SECRETS = "/api/v1/namespaces/{}/secrets/east"
PROFILE = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/clusterprofiles/east"
MULTIKUEUE = "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters/mk-east"


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        (OURS, [SECRETS.format("rayspan-system")]),
        (THEIRS, [MULTIKUEUE, SECRETS.format("kueue-system")]),
    ],
)
async def test_a_user_reads_what_it_needs_and_no_more(spec: specs.WorkerCluster, paths: list[str]) -> None:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = [says(multikueue_cluster())] * (len(paths) - 1) + [says(secret("the kubeconfig"))]
        assert (await read_login_once(client, spec)).kubeconfig == "the kubeconfig"
        assert [(one.method, one.path) for one in server.asked] == [("GET", path) for path in paths]


@pytest.mark.parametrize(
    ("spec", "lent", "place"),
    [(PROFILED, False, ("fleet", "rayspan-system")), (THEIRS, True, ("kueue-system", "kueue-system"))],
)  # fmt: skip
async def test_a_user_reads_a_profile_and_its_token(
    spec: specs.WorkerCluster, lent: bool, place: tuple[str, str]
) -> None:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = [*([says(by_profile())] if lent else []), says(profile()), says(token("mine"))]
        assert read((await read_login_once(client, spec)).kubeconfig) == ("https://east", "mine")
        paths = [*([MULTIKUEUE] if lent else []), PROFILE.format(place[0]), SECRETS.format(place[1])]
        assert [(one.method, one.path) for one in server.asked] == [("GET", path) for path in paths]


@pytest.mark.parametrize(
    ("spec", "answers", "sentence"),
    [
        (OURS, [refuses(404)], "Secret east does not exist in rayspan-system; create it with a kubeconfig."),
        (OURS, [says(secret(None))], "Secret east in rayspan-system has no key kubeconfig; add it."),
        (THEIRS, [says(multikueue_cluster()), refuses(404)],
         "Secret east does not exist in kueue-system; create it with a kubeconfig."),
        (THEIRS, [refuses(404)],
         "spec.source.multiKueueClusterRef names MultiKueueCluster mk-east, which does not exist; create it, "),
    ],
)  # fmt: skip
async def test_a_missing_object_is_reported_to_a_user(
    spec: specs.WorkerCluster, answers: list[Answer], sentence: str
) -> None:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = answers
        with pytest.raises((BadLogin, specs.InvalidSpec)) as error:
            await read_login_once(client, spec)
        assert str(error.value).startswith(sentence)


async def test_a_right_that_a_user_lacks_is_not_taken_for_a_missing_secret() -> None:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        server.lists = [refuses(403)]
        with pytest.raises(ApiError):
            await read_login_once(client, OURS)
