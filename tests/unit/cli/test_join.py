"""`rayspan join`, `rotate` and `leave` from their user's view: objects on both sides, output and exit codes.

Two small servers keep objects, so that a verb can be stopped at each of its writes and repeated. Tests on clusters
cover real API servers.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter import __main__ as command
from adapter import membership, names
from adapter.cli import remaining_watch
from adapter.cli.membership import clients, join, leave, membership_objects
from adapter.membership import ApiServerAddress
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import format_time
from tests.unit import apiserver, verbs
from tests.unit.apiserver import Server, kubeconfig, refuses, says

RBAC, OURS, CORE = "/apis/rbac.authorization.k8s.io/v1", "/apis/rayspan.dev/v1alpha1", "/api/v1"
CLUSTER = f"{OURS}/workerclusters/east"
SECRET = f"{CORE}/namespaces/rayspan-system/secrets/east"
ACCOUNT = f"{CORE}/namespaces/rayspan-system/serviceaccounts/rayspan-worker"
SYSTEM = f"{CORE}/namespaces/rayspan-system"
OPENED = "rolebindings/rayspan-worker-tenant"
URL = "https://east.example.com:6443"
_KINDS = {"pods", "placements", "dispatchpolicies", "workloads", "configmaps", "rolebindings", "namespaces", "nodes",
          "localqueues", "clusterqueues", "admissionchecks", "deployments", "secrets", "serviceaccounts",
          "persistentvolumeclaims", "roles", "widgets", "gadgets",
          "events", "leases"}  # fmt: skip
_DISCOVERY = {
    CORE: ["configmaps", "events", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts"],
    RBAC: ["rolebindings", "roles"],
    "/apis/coordination.k8s.io/v1": ["leases"],
    "/apis/example.com/v1": ["widgets"],
    "/apis/example.com/v1alpha1": ["gadgets", "widgets"],
    "/apis/metrics.example.com/v1": ["events"],
}


@dataclass
class Keeper(Server):
    """Keeps objects by their paths and rejects all writes after the first `most`."""

    objects: dict[str, Raw] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    most: int = 10**9
    tokens: list[str] = field(default_factory=list)
    longest: timedelta = timedelta(days=365)  # the longest lifetime of a token
    versions: int = 0
    connects: bool = True  # a controller observes WorkerClusters
    unreadable: set[str] = field(default_factory=set)  # paths

    async def handle(self, request: web.Request) -> web.StreamResponse:
        login = request.headers["Authorization"].removeprefix("Bearer ")
        if login not in (apiserver.TOKEN, *self.tokens):
            return await refuses(401, "Unauthorized")(request)
        if request.path == "/readyz":
            return await apiserver.text("ok", kind="text/plain")(request)
        body = json.loads(await request.text() or "null")
        if request.path.endswith("selfsubjectaccessreviews"):
            return await says({"status": {"allowed": True}})(request)
        if request.method != "GET":
            if len(self.written) >= self.most:
                return await refuses(500, "InternalError", "etcd is away.")(request)
            self.written.append(f"{request.method} {request.path}")
        answer = {"GET": self._get, "PATCH": self._patch, "POST": self._token, "DELETE": self._delete}
        send = answer[request.method](request, body)
        self.news.set()
        return await send(request)

    def put(self, path: str, **content: Any) -> None:
        self.versions += 1
        name = {"name": path.rpartition("/")[2], "resourceVersion": str(self.versions)}
        meta = {"uid": f"uid-{self.versions}", "generation": 1} | content.pop("metadata", {}) | name
        if "/namespaces/" in path and not path.startswith(f"{CORE}/namespaces/{name['name']}"):
            meta["namespace"] = path.partition("/namespaces/")[2].partition("/")[0]
        self.objects[path] = {**content, "metadata": meta}

    def _get(self, request: web.Request, _: Raw) -> apiserver.Answer:
        kind = request.path.rpartition("/")[2]
        if request.path in self.unreadable:
            return refuses(403)
        if request.path == "/apis":
            versions = [path.removeprefix("/apis/") for path in _DISCOVERY if path != CORE]
            groups = {version.partition("/")[0] for version in versions}
            return says({"groups": [_group(name, versions) for name in sorted(groups)]})
        if request.path in _DISCOVERY:
            listed = [
                {"name": name, "namespaced": True, "verbs": ["delete", "list"]} for name in _DISCOVERY[request.path]
            ]
            others = [
                {"name": "pods/status", "namespaced": True, "verbs": ["delete", "list"]},
                {"name": "nodes", "namespaced": False, "verbs": ["delete", "list"]},
                {"name": "podmetrics", "namespaced": True, "verbs": ["list"]},
                {"name": "localsubjectaccessreviews", "namespaced": True, "verbs": ["create"]},
            ]
            return says({"resources": [*others, *listed]})
        if request.path in self.objects:
            return says(self.objects[request.path])
        if kind in _KINDS:
            labels = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if "=" in part)
            within = "/namespaces/rayspan-system/" if "/namespaces/rayspan-system/" in request.path else ""
            folders = ((path.rpartition("/")[0], one) for path, one in self.objects.items())
            found = [one for at, one in folders if at.endswith(f"/{kind}") and within in f"{at}/"]
            mine = [one for one in found if labels.items() <= (one["metadata"].get("labels") or {}).items()]
            return says({"kind": "List", "items": mine})
        return refuses(404, "NotFound", f'{request.path.split("/")[-2]} "{kind}" not found')

    def _patch(self, request: web.Request, body: Raw) -> apiserver.Answer:
        before = self.objects.get(request.path)
        if before is None:
            self.put(request.path, **body)
            if self.connects and "/workerclusters/" in request.path:
                told = {"type": "Connected", "status": "True", "observedGeneration": 1}
                self.objects[request.path]["status"] = {"conditions": [told]}
        elif (after := _merged(before, body)) != before:
            self.versions += 1
            after["metadata"]["resourceVersion"] = str(self.versions)
            self.objects[request.path] = after
        return says(self.objects[request.path])

    def _token(self, request: web.Request, body: Raw) -> apiserver.Answer:
        assert request.path == f"{ACCOUNT}/token" and ACCOUNT in self.objects
        self.tokens.append(f"{apiserver.TOKEN}-{len(self.tokens)}")
        lasts = min(timedelta(seconds=body["spec"]["expirationSeconds"]), self.longest)
        given = {"token": self.tokens[-1], "expirationTimestamp": format_time(datetime.now(UTC) + lasts)}
        return says({"status": given}, 201)

    def _delete(self, request: web.Request, body: Raw) -> apiserver.Answer:
        wanted, current = body["preconditions"], self.objects[request.path]["metadata"]
        assert wanted["uid"] == current["uid"]
        if wanted.get("resourceVersion") not in (None, current["resourceVersion"]):
            return refuses(409, "Conflict", "the object has been modified")
        within = request.path.removeprefix(CORE) if request.path == SYSTEM else request.path
        for path in [path for path in self.objects if f"{within}/" in f"{path}/"]:
            del self.objects[path]
        return says({"kind": "Status", "status": "Success"})


def _group(name: str, versions: list[str]) -> Raw:
    """An entry of the discovery document: the first version is preferred."""
    found = [{"groupVersion": version} for version in versions if version.startswith(f"{name}/")]
    return {"name": name, "preferredVersion": found[0], "versions": found}


def _merged(before: Raw, body: Raw) -> Raw:
    after = dict(before)
    for key, value in body.items():
        old = after.get(key)
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return after


def bare(uid: str, *namespaces: str) -> dict[str, Raw]:
    made = {f"{CORE}/namespaces/{name}": {"metadata": {"name": name, "uid": name}} for name in ("default", *namespaces)}
    return {**made, f"{CORE}/namespaces/kube-system": {"metadata": {"name": "kube-system", "uid": uid}}}


def state(keeper: Keeper) -> dict[str, Raw]:
    """The server's objects, without fields that the server sets and fields that differ by token."""
    found = json.loads(json.dumps(keeper.objects))
    for one in found.values():
        for key in ("uid", "resourceVersion"):
            one["metadata"].pop(key, None)
        (one["metadata"].get("annotations") or {}).pop(names.TOKEN_EXPIRES_ANNOTATION, None)
        one.pop("data", None)
    return dict(found)


class Both:
    """Two clusters, and the command as a person types it."""

    def __init__(
        self,
        manager: Keeper,
        worker: Keeper,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.manager, self.worker, self._capsys, self._patch = manager, worker, capsys, patch
        self.files = [folder / "manager", folder / "worker"]
        for file, keeper in zip(self.files, (manager, worker), strict=True):
            file.write_text(yaml.safe_dump(kubeconfig(keeper.url)))

    async def run(self, verb: str, *words: str, code: int = 0) -> tuple[str, str]:
        """Runs a verb and returns its output; checks that no token is shown."""
        ended = await verbs.run(self._patch, verb, "east", *self.logins, *words)
        said, complained = self._capsys.readouterr()
        assert ended == code, said + complained
        assert apiserver.TOKEN not in said + complained
        return said, complained

    @property
    def logins(self) -> list[str]:
        return ["--kubeconfig", str(self.files[0]), "--worker-kubeconfig", str(self.files[1])]

    async def join(self, *words: str, code: int = 0) -> tuple[str, str]:
        return await self.run("join", "--server", URL, *words, code=code)

    def kubeconfig(self) -> Any:
        return yaml.safe_load(membership.read_kubeconfig(self.manager.objects[SECRET]))

    def writes(self) -> int:
        return len(self.manager.written) + len(self.worker.written)


@pytest.fixture
async def both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Both]:
    for module in (remaining_watch, join, leave):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(join, "CONNECT_TIMEOUT_SECONDS", 0.05)
    manager, worker = Keeper(objects=bare("m", "rayspan-system")), Keeper(objects=bare("w", "research"))
    async with apiserver.serving(manager), apiserver.serving(worker):
        yield Both(manager, worker, tmp_path, capsys, monkeypatch)


# --- join -------------------------------------------------------------------------------------------------------------


async def test_a_cluster_joins(both: Both) -> None:
    said, complained = await both.join("-n", "research")
    assert complained == ""
    lines = said.splitlines()
    assert lines[:2] == [
        "worker cluster: namespace/rayspan-system created",
        "worker cluster: serviceaccount/rayspan-worker created",
    ]
    assert "worker cluster: rolebinding/rayspan-worker-tenant in research created" in lines
    *_, secret, cluster, token, connected, queue, policy, tries = lines
    assert (secret, cluster) == ("manager cluster: secret/east created", "manager cluster: workercluster/east created")
    assert token.startswith("The token expires ")
    again = " ".join(["kubectl rayspan rotate east", *both.logins])
    assert token.endswith(f" UTC, in 90 days. Renew it before that with `{again}`.")
    assert connected == "WorkerCluster east is connected."
    assert queue.startswith(
        "Next: Namespace research of the manager has no LocalQueue yet whose ClusterQueue lists "
        "Rayspan's AdmissionCheck"
    )
    assert policy.startswith("Next: No DispatchPolicy names east yet: add it to spec.clusters.names of one")
    here = f"--worker-cluster east -n research --kubeconfig {both.files[0]}"
    assert tries.startswith(f"Next: `kubectl rayspan preflight {here}` tests whether pods ")
    found = both.kubeconfig()
    assert found["clusters"][0]["cluster"] == {"server": URL}
    assert found["users"][0]["user"] == {"token": both.worker.tokens[0]}
    assert both.manager.objects[CLUSTER]["spec"] == {"source": {"kubeConfig": {"secretRef": {"name": "east"}}}}
    opened = [path for path in both.worker.objects if path.endswith(OPENED)]
    assert opened == [f"{RBAC}/namespaces/research/{OPENED}"]


async def test_a_second_join_changes_nothing(both: Both) -> None:
    await both.join()
    before = json.dumps([both.manager.objects, both.worker.objects])
    said, _ = await both.join("-n", "default")
    assert json.dumps([both.manager.objects, both.worker.objects]) == before and len(both.worker.tokens) == 1
    told = [line.rpartition(" ")[2] for line in said.splitlines() if line.startswith(("worker", "manager"))]
    assert set(told) == {"unchanged"} and len(told) == len(membership_objects.account_objects()) + 3


async def test_a_second_join_without_options_keeps_the_address_and_opens_nothing(both: Both) -> None:
    """The kubeconfig of the administrator may name a bastion, and the manager does not use that."""
    await both.join("-n", "research")
    before = json.dumps([both.manager.objects, both.worker.objects])
    said, _ = await both.run("join")
    assert json.dumps([both.manager.objects, both.worker.objects]) == before and both.worker.url != URL
    assert "rolebinding/rayspan-worker-tenant" not in said and "preflight --worker-cluster east --kubeconfig" in said


async def test_another_namespace_is_opened_beside_the_first(both: Both) -> None:
    await both.join()
    said, _ = await both.join("-n", "research")
    assert "rolebinding/rayspan-worker-tenant in research created" in said and "secret/east unchanged" in said
    assert len([path for path in both.worker.objects if path.endswith(OPENED)]) == 2


async def test_a_token_that_the_cluster_rejects_is_replaced(both: Both) -> None:
    await both.join()
    both.worker.tokens[0] = "of an account that was deleted"
    said, _ = await both.join()
    assert "secret/east configured" in said and len(both.worker.tokens) == 2
    assert both.kubeconfig()["users"][0]["user"]["token"] == both.worker.tokens[1]


async def test_a_dry_run_writes_nothing(both: Both) -> None:
    said, _ = await both.join("-o", "yaml", "--expires", "30d")
    assert both.writes() == 0
    shown = list(yaml.safe_load_all(said))
    assert [one["kind"] for one in shown[-2:]] == ["Secret", "WorkerCluster"]
    assert len(shown) == len(membership_objects.account_objects()) + 3
    assert yaml.safe_load(shown[-2]["stringData"]["kubeconfig"])["users"][0]["user"] == {"token": "TOKEN"}
    assert "create token rayspan-worker --duration=720h" in said
    await both.join("--expires", "30d")
    made = {
        membership_objects.display_name(one)
        for one in (*both.worker.objects.values(), *both.manager.objects.values())
        if "kind" in one
    }
    assert {membership_objects.display_name(one) for one in shown} == made


async def test_a_shorter_token_is_reported(both: Both) -> None:
    both.worker.longest = timedelta(days=1)
    said, _ = await both.join()
    assert "UTC, in 1 day. The worker cluster issues none that lasts longer. Renew it before" in said


async def test_an_existing_token_is_not_reported_as_shortened(both: Both) -> None:
    both.worker.longest = timedelta(days=60)
    await both.join()
    said, _ = await both.join()
    assert "UTC, in 60 days. Renew it before" in said and len(both.worker.tokens) == 1


async def test_the_policies_that_name_the_cluster_are_reported(both: Both) -> None:
    both.manager.put(f"{OURS}/dispatchpolicies/everywhere", spec={"clusters": {"names": ["east"]}})
    said, _ = await both.join()
    assert "Next: DispatchPolicy everywhere sends workers there.\n" in said


async def test_a_cluster_that_is_not_connected_is_reported(both: Both) -> None:
    both.manager.connects = False
    said, _ = await both.join(code=3)
    assert "WorkerCluster east is joined, but not connected.\n" in said
    assert "Failure: the controller has not reported on it; see `kubectl -n rayspan-system get pods`" in said


async def test_a_missing_queue_is_reported(both: Both) -> None:
    queue, system = f"{CORE}/namespaces/default/localqueues/ray", "/apis/kueue.x-k8s.io/v1beta2"
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "rayspan"}]}}
    both.manager.put(queue, spec={"clusterQueue": "ray"})
    both.manager.put(f"{system}/clusterqueues/ray", spec=checks)
    both.manager.put(f"{system}/admissionchecks/rayspan", spec={"controllerName": names.CONTROLLER_NAME})
    said, _ = await both.join(code=3)
    assert (
        "WorkerCluster east is connected.\nFailure: There is no LocalQueue ray in namespace default of east; create "
        "it.\n" in said
    )


async def test_the_token_of_an_earlier_version_is_reported(both: Both) -> None:
    of = {"kubernetes.io/service-account.name": "rayspan-worker"}
    both.worker.put(f"{SYSTEM}/secrets/rayspan-worker", metadata={"annotations": of})
    said, _ = await both.join()
    assert "holds a token that never expires" in said and f"{SYSTEM}/secrets/rayspan-worker" in both.worker.objects


async def test_the_clusters_own_authority_is_trusted_at_another_address(both: Both) -> None:
    """The authority that the cluster shows to its pods; at the user's own address the user's authority is enough."""
    both.worker.put(f"{CORE}/namespaces/kube-system/configmaps/kube-root-ca.crt", data={"ca.crt": "ITS OWN\n"})
    logins = {"kubeconfig": str(both.files[0]), "worker_kubeconfig": str(both.files[1])}
    given = argparse.Namespace(name="east", context="", worker_context="", **logins)
    async with clients.open_clients(given) as found:
        mine = replace(
            found,
            worker_address=replace(
                found.worker_address, ca_bundle="MINE\n", tls_server_name="a", proxy_url="http://10.0.0.1:3128"
            ),
        )
        assert await join.address_for_manager(mine, f"{URL}/") == ApiServerAddress(URL, "MINE\nITS OWN\n")
        assert await join.address_for_manager(mine, "") == ApiServerAddress(both.worker.url, "MINE\n", "a")
        known = replace(found, worker_address=replace(found.worker_address, ca_bundle="MINE\nITS OWN\n"))
        assert (await join.address_for_manager(known, URL)).ca_bundle == "MINE\nITS OWN\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-n", "no"], "There is no namespace no in the worker cluster: create it, or name another one with -n.\n"),
        (["--server", "https://:1"], "The controller would not accept this kubeconfig: "),
        (
            ["--server", "http://10.0.0.1:80"],
            "http://10.0.0.1:80 is not https, so the token would be readable on the way",
        ),
        (["--expires", "1m"], "1m is not a valid token lifetime: use 10m to 49710d\n"),
        (["--expires", "soon"], "'soon' is not a duration"),
        (["-o", "json"], "invalid choice"),
        (["-n"], "expected one argument"),
    ],
)
async def test_a_wrong_command_line_writes_nothing(words: list[str], sentence: str, both: Both) -> None:
    _, complained = await both.join(*words, code=2)
    assert sentence in complained and both.writes() == 0


@pytest.mark.parametrize("verb", ["join", "rotate", "leave"])
async def test_the_worker_cluster_is_never_guessed(
    verb: str, both: Both, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-rayspan", verb, "east", "--kubeconfig", str(both.files[0])])
    assert await asyncio.to_thread(command.main) == 2
    assert capsys.readouterr().err.startswith("Name the worker cluster with --worker-context CONTEXT or ")


@pytest.mark.parametrize("verb", ["join", "rotate", "leave"])
async def test_a_manager_is_no_worker_of_its_own(verb: str, both: Both) -> None:
    both.worker.objects = bare("m")
    _, complained = await both.run(verb, code=2)
    assert complained.startswith("Both logins lead to the same cluster") and both.writes() == 0


@pytest.mark.parametrize("verb", ["join", "rotate", "leave"])
@pytest.mark.parametrize("side", ["manager", "worker"])
async def test_trouble_names_the_cluster(verb: str, side: str, both: Both) -> None:
    config = kubeconfig(getattr(both, side).url, user={"token": "wrong"})
    both.files[side == "worker"].write_text(yaml.safe_dump(config))
    _, complained = await both.run(verb, code=1)
    assert complained == (
        f"The {side} cluster does not accept your credentials: log in again, or check your kubeconfig.\n"
    )


async def test_an_invalid_name_is_rejected(
    both: Both, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("East", "..", "a" * 64, "-a"):
        monkeypatch.setattr(sys, "argv", ["kubectl-rayspan", "join", f"--worker-context={name}", "--", name])
        with pytest.raises(SystemExit):
            await asyncio.to_thread(command.main)
        assert "cannot be the name of a WorkerCluster" in capsys.readouterr().err


@pytest.mark.long
async def test_a_join_that_was_cut_off_at_any_write_can_be_repeated(both: Both) -> None:
    await both.join("-n", "research")
    goal, all_writes = (state(both.manager), state(both.worker)), both.writes()
    assert all_writes > 8
    for most in range(all_writes):
        both.manager.objects, both.worker.objects = bare("m", "rayspan-system"), bare("w", "research")
        both.manager.written, both.worker.written = [], []
        both.worker.most = min(most, all_writes - 2)  # the last two writes are the manager's
        both.manager.most = max(0, most - (all_writes - 2))
        _, complained = await both.join("-n", "research", code=1)
        assert complained.endswith(" cluster denied the request: etcd is away.\n")
        both.manager.most = both.worker.most = 10**9
        await both.join("-n", "research")
        assert (state(both.manager), state(both.worker)) == goal


# --- rotate -----------------------------------------------------------------------------------------------------------


async def test_a_rotation_changes_the_token_alone_and_says_when_both_end(both: Both) -> None:
    told, _ = await both.join("--expires", "7d")
    assert "--expires 10080m`." in told, "what is shown renews it for as long"
    before = both.kubeconfig()
    said, _ = await both.run("rotate")
    after = both.kubeconfig()
    assert after["users"][0]["user"]["token"] == both.worker.tokens[1] != before["users"][0]["user"].pop("token")
    del after["users"][0]["user"]["token"]
    assert after == before
    first, second, third = said.splitlines()
    assert first == "manager cluster: secret/east configured"
    assert second.startswith("The token expires ") and ", in 90 days. Renew it before" in second
    assert third.startswith("The previous token expires ") and third.endswith(" UTC, in 7 days.")


async def test_a_rotation_needs_a_secret_that_is_used(both: Both) -> None:
    await both.join()
    both.manager.objects[CLUSTER]["spec"] = {"source": {"kubeConfig": {"secretRef": {"name": "east-login"}}}}
    writes = both.writes()
    _, complained = await both.run("rotate", code=2)
    assert complained.startswith("WorkerCluster east uses Secret east-login ") and both.writes() == writes


@pytest.mark.parametrize(
    ("gone", "sentence"),
    [
        ("cluster", ("There is no WorkerCluster east; `kubectl get workerclusters` lists those that exist, and ")),
        ("account", "The worker cluster has no account rayspan-worker in rayspan-system; "),
        ("secret", "There is no Secret east in rayspan-system of the manager; "),
        (
            "kubeconfig",
            (
                "Secret east in rayspan-system cannot be renewed: it is not a kubeconfig with one user "
                "that has a token; "
            ),
        ),
    ],
)
async def test_a_rotation_needs_a_joined_cluster(gone: str, sentence: str, both: Both) -> None:
    await both.join()
    if gone == "kubeconfig":
        both.manager.objects[SECRET]["data"] = {"kubeconfig": "e30="}
    else:
        keeper = both.worker if gone == "account" else both.manager
        del keeper.objects[{"cluster": CLUSTER, "account": ACCOUNT, "secret": SECRET}[gone]]
    before = both.writes()
    _, complained = await both.run("rotate", code=2)
    assert complained.startswith(sentence) and "`kubectl rayspan join east` creates it" in complained
    assert both.writes() == before


# --- leave ------------------------------------------------------------------------------------------------------------


LEASES = "/apis/coordination.k8s.io/v1/namespaces/rayspan-system/leases"


async def test_a_leave_deletes_everything(both: Both) -> None:
    manager, worker = state(both.manager), state(both.worker)
    await both.join("-n", "research", "-n", "default")
    both.worker.put(f"{LEASES}/rayspan-08f391bbc4-east")
    said, complained = await both.run("leave")
    assert (state(both.manager), state(both.worker)) == (manager, worker) and complained == ""
    lines = said.splitlines()
    assert lines[:3] == [
        "east leaves. When its last worker is gone, these are deleted:",
        "  in the manager cluster: workercluster/east, secret/east",
        "  in the worker cluster: " + lines[2].partition(": ")[2],
    ]
    assert "rolebinding/rayspan-worker-tenant in research" in lines[2] and lines[2].endswith("namespace/rayspan-system")
    assert lines[3:6] == [
        "workercluster/east drained",
        "manager cluster: workercluster/east deleted",
        "manager cluster: secret/east deleted",
    ]
    assert lines[-1] == "east has left."
    said, _ = await both.run("leave")
    assert said.endswith("east has left.\n"), "and it may be done again"


async def test_nothing_is_deleted_before_the_last_worker(both: Both) -> None:
    await both.join()
    ours = {names.MANAGER_LABEL: membership.cluster_identity_of(both.manager.objects[f"{CORE}/namespaces/kube-system"])}
    both.worker.put(f"{CORE}/namespaces/default/pods/w", metadata={"labels": {**ours, names.CLUSTER_LABEL: "east"}})
    said, complained = await both.run("leave", "--timeout", "3s", code=3)
    assert "Waiting until the controller has removed 1 pod ...\n" in said
    assert complained.startswith(
        "The timeout has passed, and workers remain. Nothing was deleted, and east continues to drain."
    )
    assert both.manager.objects[CLUSTER]["spec"]["draining"] and both.manager.objects[CLUSTER]["spec"]["cordoned"]
    assert not [one for one in both.manager.written + both.worker.written if one.startswith("DELETE")]
    del both.worker.objects[f"{CORE}/namespaces/default/pods/w"]
    both.manager.objects[CLUSTER]["status"]["workers"] = 2
    said, _ = await both.run("leave", "--timeout", "3s", code=3)
    assert "Waiting until the controller has removed the quota of 2 workers ...\n" in said


async def test_workers_of_another_manager_do_not_stop_a_leave(both: Both) -> None:
    await both.join()
    labels = {names.MANAGER_LABEL: "another", names.CLUSTER_LABEL: "east"}
    both.worker.put(f"{CORE}/namespaces/default/pods/w", metadata={"labels": labels})
    await both.run("leave")
    assert f"{CORE}/namespaces/default/pods/w" in both.worker.objects


async def test_an_account_in_use_by_others_stays(both: Both) -> None:
    await both.join()
    other = {f"{names.JOINED_PREFIX}another": "far"}
    both.worker.objects[ACCOUNT]["metadata"]["annotations"] |= other
    worker = set(both.worker.objects)
    said, _ = await both.run("leave")
    assert set(both.worker.objects) == worker and SECRET not in both.manager.objects
    assert both.worker.objects[ACCOUNT]["metadata"]["annotations"] == other
    assert "nothing, because other managers use its account" in said and "stays valid until it expires" in said


async def test_a_wrong_cluster_does_not_lose_its_account(both: Both) -> None:
    await both.join()
    key = next(iter(both.worker.objects[ACCOUNT]["metadata"]["annotations"]))
    both.worker.objects[ACCOUNT]["metadata"]["annotations"][key] = "west"
    before = both.writes()
    for verb in ("leave", "rotate"):
        _, complained = await both.run(verb, code=2)
        assert complained.startswith("The worker cluster that you named has joined as west, not as east: ")
    assert both.writes() == before


@pytest.mark.parametrize("joined", [True, False])
async def test_a_namespace_with_other_objects_stays(both: Both, joined: bool) -> None:
    """The worker cluster is a manager too, intended or by mistake: its controller and logins are there."""
    if joined:
        await both.join()
    system = f"{CORE}/namespaces/rayspan-system"
    for path in ("", "/configmaps/kube-root-ca.crt", "/serviceaccounts/default", "/secrets/far"):
        if not joined or path:
            both.worker.put(f"{system}{path}")
    said, _ = await both.run("leave")
    assert f"{system}/secrets/far" in both.worker.objects and ACCOUNT not in both.worker.objects
    assert "namespace/rayspan-system" not in said
    assert "Namespace rayspan-system of the worker cluster is kept, because it holds secrets/far.\n" in said


@pytest.mark.parametrize(
    "path",
    [
        LEASES,
        f"{CORE}/namespaces/rayspan-system/persistentvolumeclaims",
        "/apis/example.com/v1/namespaces/rayspan-system/widgets",
        "/apis/example.com/v1alpha1/namespaces/rayspan-system/gadgets",
        "/apis/metrics.example.com/v1/namespaces/rayspan-system/events",
    ],
)
@pytest.mark.parametrize("readable", [True, False])
async def test_a_namespace_with_an_object_of_any_kind_stays(both: Both, path: str, readable: bool) -> None:
    await both.join()
    if readable:
        both.worker.put(f"{path}/data")
    else:
        both.worker.unreadable.add(path)
    said, _ = await both.run("leave")
    assert SYSTEM in both.worker.objects and ACCOUNT not in both.worker.objects
    reason = f"it holds {path.rpartition('/')[2]}/data" if readable else f"{path} cannot be read: "
    assert f"Namespace rayspan-system of the worker cluster is kept, because {reason}" in said


async def test_an_object_that_is_created_during_the_deletions_keeps_the_namespace(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    await both.join()
    delete, path = both.worker._delete, f"{CORE}/namespaces/rayspan-system/persistentvolumeclaims/data"

    def create_meanwhile(request: web.Request, body: Raw) -> apiserver.Answer:
        answer = delete(request, body)
        if request.path.startswith(RBAC) and path not in both.worker.objects:
            both.worker.put(path)
        return answer

    monkeypatch.setattr(both.worker, "_delete", create_meanwhile)
    said, _ = await both.run("leave")
    assert path in both.worker.objects
    assert (
        "Namespace rayspan-system of the worker cluster is kept, because it holds persistentvolumeclaims/data" in said
    )


@pytest.mark.long
def _another_manager_joins(both: Both) -> None:
    """What its `join` writes first in the worker cluster."""
    account = both.worker.objects.get(ACCOUNT)
    if account is None:
        both.worker.put(ACCOUNT, metadata={"annotations": {}})
        account = both.worker.objects[ACCOUNT]
    both.worker.versions += 1
    account["metadata"]["resourceVersion"] = str(both.worker.versions)
    account["metadata"].setdefault("annotations", {})[f"{names.JOINED_PREFIX}0123456789"] = "far"


async def test_a_manager_that_joins_during_the_drain_keeps_the_account(both: Both) -> None:
    await both.join()
    ours = {names.MANAGER_LABEL: membership.cluster_identity_of(both.manager.objects[f"{CORE}/namespaces/kube-system"])}
    pod = f"{CORE}/namespaces/default/pods/w"
    both.worker.put(pod, metadata={"labels": {**ours, names.CLUSTER_LABEL: "east"}})

    async def join_and_end_the_pod() -> None:
        while not (both.manager.objects[CLUSTER].get("spec") or {}).get("draining"):
            both.manager.news.clear()
            await both.manager.news.wait()
        _another_manager_joins(both)
        del both.worker.objects[pod]

    joining = asyncio.create_task(join_and_end_the_pod())
    output, _ = await both.run("leave", "--timeout", "30s")
    await joining
    assert "The account in the worker cluster is kept, because other managers use it." in output
    assert both.worker.objects[ACCOUNT]["metadata"]["annotations"] == {f"{names.JOINED_PREFIX}0123456789": "far"}
    assert f"{RBAC}/namespaces/default/{OPENED}" in both.worker.objects and SYSTEM in both.worker.objects


@pytest.mark.parametrize(
    ("path", "before", "sentence"),
    [
        pytest.param(ACCOUNT, True, "is kept, because other managers", id="before the account is deleted"),
        pytest.param(ACCOUNT, False, "is kept, because other managers", id="after the account is deleted"),
        pytest.param(
            f"{RBAC}/namespaces/default/{OPENED}", True, "Another manager joins", id="while a binding is deleted"
        ),
    ],
)
async def test_a_manager_that_joins_during_the_deletions_keeps_the_account(
    both: Both, monkeypatch: pytest.MonkeyPatch, path: str, before: bool, sentence: str
) -> None:
    await both.join()
    delete = both.worker._delete

    def join_meanwhile(request: web.Request, body: Raw) -> apiserver.Answer:
        if request.path == path and before:
            _another_manager_joins(both)
        answer = delete(request, body)
        if request.path == path and not before:
            _another_manager_joins(both)
        return answer

    monkeypatch.setattr(both.worker, "_delete", join_meanwhile)
    output, _ = await both.run("leave")
    assert f"{names.JOINED_PREFIX}0123456789" in both.worker.objects[ACCOUNT]["metadata"]["annotations"]
    assert SYSTEM in both.worker.objects and sentence in output


async def test_a_leave_that_was_cut_off_at_any_write_can_be_repeated(both: Both) -> None:
    manager, worker = state(both.manager), state(both.worker)
    await both.join()
    joined = json.dumps([both.manager.objects, both.worker.objects])
    both.manager.written, both.worker.written = [], []
    await both.run("leave")
    firsts, lasts = len(both.manager.written), len(both.worker.written)
    assert firsts == 3 and lasts > 5
    for most in range(firsts + lasts):
        both.manager.objects, both.worker.objects = json.loads(joined)
        both.manager.written, both.worker.written = [], []
        both.manager.most, both.worker.most = min(most, firsts), max(0, most - firsts)
        _, complained = await both.run("leave", code=1)
        assert complained.endswith(" cluster denied the request: etcd is away.\n")
        both.manager.most = both.worker.most = 10**9
        await both.run("leave")
        assert (state(both.manager), state(both.worker)) == (manager, worker)


async def test_leftovers_of_a_forced_deletion_are_reported(both: Both) -> None:
    await both.join()
    ours = {names.MANAGER_LABEL: membership.cluster_identity_of(both.manager.objects[f"{CORE}/namespaces/kube-system"])}
    both.worker.put(f"{CORE}/namespaces/default/pods/w", metadata={"labels": {**ours, names.CLUSTER_LABEL: "east"}})
    del both.manager.objects[CLUSTER]
    both.manager.put(f"{OURS}/dispatchpolicies/everywhere", spec={"clusters": {"names": ["east"]}})
    said, _ = await both.run("leave")
    assert (
        "Still in the worker cluster: 1 pod. Delete them there: `kubectl delete pods,workloads,configmaps -A -l "
    ) in said
    assert "Next: DispatchPolicy everywhere still names east; take it out of spec.clusters.names.\n" in said


@pytest.mark.parametrize("verb", ["join", "rotate", "leave"])
def test_help_has_an_example_and_the_exit_codes(verb: str) -> None:
    words = [sys.executable, "-m", "adapter", verb, "--help"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"kubectl rayspan {verb} east --context manager --worker-context east" in text and "exit code: 0" in text
