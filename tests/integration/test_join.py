"""A cluster joins, renews its login and leaves on real API servers, with the overlay's rights and nothing left behind.

By the commands as processes, as an administrator runs them. West leaves the lab's manager and joins it under another
name; in the end it is what it was.
"""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import membership, names
from adapter.preflight.preflight_facts import CLUSTER_RIGHTS, NAMESPACE_RIGHTS, PREFLIGHT_RIGHTS, Rights
from hack.lab.base.paths import REPO
from hack.testbed import install, progress
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.rights import Row, wrong
from hack.testbed.stage import Stage

pytestmark = [pytest.mark.alone, pytest.mark.long]  # no other gang shall miss west

NAME = "it-joined"
ACCOUNT = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
REFUSED: list[Row] = [
    ("create", "pods", "-n default", False),
    ("create", "pods", "-n kube-system", False),
    ("get", "secrets", "-n default", False),
    ("patch", "clusterqueues.kueue.x-k8s.io", "", False),
    ("create", "serviceaccounts/token", "-n rayspan-system", False),
]


def rayspan(stage: Stage, verb: str, name: str, *words: str, code: int = 0) -> str:
    """What the command says of west, which must end with that code; whatever it says, it shows no token."""
    logins = ("--kubeconfig", str(stage.manager.kubeconfig), "--worker-kubeconfig", str(west(stage).kubeconfig))
    command = [sys.executable, "-m", "adapter", verb, name, *logins, *words]
    done = progress.without(subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=300, check=False))
    assert done.returncode == code, done
    assert not re.search(r"eyJ[\w-]+\.eyJ", done.stdout + done.stderr), "a token is shown"
    return done.stdout if code in (0, 3) else done.stderr


def west(stage: Stage) -> Cluster:
    return stage.fleet.workers["west"]


@pytest.fixture
def back(stage: Stage, running: Controller) -> Iterator[None]:
    """Whatever a test did to west, other tests need it as it was."""
    yield
    stage.manager.kubectl("-n", stage.name, "delete", "rayclusters", "--all", "--ignore-not-found")
    if stage.manager.get("workerclusters", NAME) or stage.manager.get("secrets", NAME, names.SYSTEM_NAMESPACE):
        rayspan(stage, "leave", NAME, "--timeout", "3m")
    rayspan(stage, "join", "west")
    stage.manager.kubectl("apply", "-k", REPO / "kustomize/overlays/demo-fleet")
    command = [sys.executable, "-m", "adapter", "uncordon", "west", "--kubeconfig", str(stage.manager.kubeconfig)]
    subprocess.run(command, cwd=REPO, capture_output=True, timeout=60, check=True)


def test_a_second_join_and_one_that_only_shows_change_nothing(stage: Stage, running: Controller) -> None:
    """The lab has joined already, by the same functions."""
    rayspan(stage, "join", "west")
    before = standing(stage)
    assert len(before) > 8 and all(before.values())
    said = rayspan(stage, "join", "west")
    told = [line for line in said.splitlines() if line.startswith(("worker cluster: ", "manager cluster: "))]
    assert len(told) > 8 and all(line.endswith(" unchanged") for line in told)
    assert standing(stage) == before
    missing = rayspan(stage, "join", "west", "-n", "no-such", "-o", "yaml", code=2)
    assert missing.startswith("There is no namespace no-such in the worker cluster")
    objects = list(yaml.safe_load_all(rayspan(stage, "join", "west", "-o", "yaml")))
    assert standing(stage) == before
    for cluster, accepted in ((west(stage), objects[:-2]), (stage.manager, objects[-2:])):
        how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
        cluster.kubectl("apply", *how, "-f", "-", input=yaml.safe_dump_all(accepted))


@pytest.mark.usefixtures("back")
def test_west_leaves_and_joins_under_another_name(stage: Stage, running: Controller, tmp_path: Path) -> None:
    stage.clusters = (NAME,)
    stage.build({"west": 2})
    rayspan(stage, "leave", "west", "--timeout", "3m")
    assert left(stage, "west") == []
    assert rayspan(stage, "leave", "west").endswith("west has left.\n"), "and it may be done again"

    said = rayspan(stage, "join", NAME, "-n", stage.name, "--expires", "2h")
    assert f"WorkerCluster {NAME} is connected.\n" in said and "UTC, in 2 hours. Renew it before" in said
    assert f"Next: DispatchPolicy {stage.name} sends workers there.\n" in said
    in_namespace = {**NAMESPACE_RIGHTS, **PREFLIGHT_RIGHTS}
    rows = [*allowed(CLUSTER_RIGHTS, "-A"), *allowed(in_namespace, f"-n {stage.name}"), *REFUSED]
    assert len(rows) > 30 and wrong(west(stage), ACCOUNT, rows) == []
    assert "has joined as it-joined" in rayspan(stage, "join", "west", code=2)

    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "its worker runs there", running.tail)

    first = install.worker_kubeconfig(stage.manager, NAME)
    said = rayspan(stage, "rotate", NAME, "--expires", "30d")
    assert "UTC, in 30 days. Renew it before" in said and "The previous token expires " in said
    second = install.worker_kubeconfig(stage.manager, NAME)
    assert membership.with_token(first, membership.token_in_kubeconfig(second)) == second != first
    for number, text in enumerate((first, second)):
        assert ACCOUNT in whoami(text, tmp_path / str(number)), "both tokens are good"
    wait(lambda: asks_by(stage, second), 30, "the controller asks by the new one", running.tail)
    assert connected(stage)
    wait(lambda: stage.running(1), 30, "its worker still runs", running.tail)

    west(stage).kubectl("delete", "serviceaccount", names.WORKER_ACCOUNT, "-n", names.SYSTEM_NAMESPACE)
    rayspan(stage, "join", NAME, "-n", stage.name)
    third = install.worker_kubeconfig(stage.manager, NAME)
    assert third != second, (
        "the token of an account that was deleted is not kept, however long an API server takes it for good"
    )
    wait(lambda: asks_by(stage, third), 30, "the controller asks by the third one", running.tail)

    for overlay in ("worker-logs", "worker-exec"):
        west(stage).kubectl("apply", "-k", REPO / "kustomize" / "overlays" / overlay)
    said = rayspan(stage, "leave", NAME, "--timeout", "5s", code=3)
    assert f"RayCluster {stage.name}/pi: 1 worker left" in said
    assert connected(stage) and west(stage).get("serviceaccounts", names.WORKER_ACCOUNT, names.SYSTEM_NAMESPACE)
    stage.manager.delete("raycluster", "pi", stage.name)
    rayspan(stage, "leave", NAME, "--timeout", "3m")
    assert left(stage, NAME) == [] and stage.leftovers() == []


@pytest.mark.usefixtures("back")
def test_a_wrong_cluster_keeps_its_account(stage: Stage) -> None:
    """East's name with a login to west: a mistyped context."""
    before = standing(stage)
    for verb in ("join", "rotate", "leave"):
        said = rayspan(stage, verb, "east", code=2)
        assert "has joined as west" in said or "east is another cluster than the one that you named" in said
    assert standing(stage) == before


def asks_by(stage: Stage, kubeconfig: str) -> bool:
    """Whether the controller follows west by this token.

    West's API server notes an identity with each request. kubectl and `join` used the token, too, and follow nothing.
    """
    claims = membership.token_in_kubeconfig(kubeconfig).split(".")[1]
    known = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]
    lines = west(stage).kubeconfig.with_name("audit.log").read_text(errors="replace").splitlines()
    signs = f'"JTI={known}"', '"userAgent":"rayspan/', '"verb":"watch"'
    return any(all(sign in line for sign in signs) for line in lines)


def standing(stage: Stage) -> dict[str, str]:
    """The versions of all that makes west a worker, on both sides; those of the WorkerCluster's status aside."""
    worker, manager = west(stage), stage.manager
    roles = (names.WORKER_ACCOUNT, names.TENANT_ROLE)
    found = {
        "namespace": worker.get("namespaces", names.SYSTEM_NAMESPACE),
        "account": worker.get("serviceaccounts", names.WORKER_ACCOUNT, names.SYSTEM_NAMESPACE),
        "binding": worker.get("clusterrolebindings", names.WORKER_ACCOUNT),
        "opened": worker.get("rolebindings", names.TENANT_ROLE, "default"),
        "secret": manager.get("secrets", "west", names.SYSTEM_NAMESPACE),
        **{role: worker.get("clusterroles", role) for role in roles},
    }
    versions = {what: str((one.get("metadata") or {}).get("resourceVersion") or "") for what, one in found.items()}
    cluster = manager.get("workerclusters", "west").get("metadata") or {}
    return {**versions, "cluster": f"{cluster.get('uid')} {cluster.get('generation')}", "east": _east(stage)}


def _east(stage: Stage) -> str:
    found = stage.fleet.workers["east"].get("serviceaccounts", names.WORKER_ACCOUNT, names.SYSTEM_NAMESPACE)
    return str(found["metadata"]["resourceVersion"])


def left(stage: Stage, name: str) -> list[str]:
    """What is left of a membership on either side."""
    worker, manager = west(stage), stage.manager
    found: dict[str, Any] = {
        "WorkerCluster": manager.get("workerclusters", name),
        "Secret": manager.get("secrets", name, names.SYSTEM_NAMESPACE),
        "Namespace": worker.get("namespaces", names.SYSTEM_NAMESPACE),
        "ClusterRole": worker.get("clusterroles", names.WORKER_ACCOUNT),
        "the tenants' ClusterRole": worker.get("clusterroles", names.TENANT_ROLE),
        "what lets it read logs": worker.get("clusterroles", names.LOGS_ROLE),
        "what lets it run commands": worker.get("clusterroles", names.EXEC_ROLE),
        "ClusterRoleBinding": worker.get("clusterrolebindings", names.WORKER_ACCOUNT),
        "RoleBindings": [one for one in worker.items("rolebindings") if membership.is_namespace_binding(one)],
    }
    return [what for what, there in found.items() if there]


def allowed(rights: Rights, where: str) -> list[Row]:
    """The rights as questions; a kind that the cluster does not know cannot be asked for."""
    known = {kind: verbs for kind, verbs in rights.items() if kind[0] != names.VOLCANO_GROUP and "/" not in kind[1]}
    return [
        (verb, ".".join(filter(None, (kind, group))), _where(kind, where), True)
        for (group, kind), verbs in known.items()
        for verb in verbs
    ]


def _where(kind: str, where: str) -> str:
    return "" if kind in ("clusterqueues", "cohorts", "resourceflavors", "namespaces", "nodes") else where


def whoami(kubeconfig: str, file: Path) -> str:
    file.touch(mode=0o600)
    file.write_text(kubeconfig)
    return Cluster("west", file).kubectl("auth", "whoami")


def connected(stage: Stage) -> bool:
    found = stage.manager.get("workerclusters", NAME)
    return bool(condition(found, names.CONNECTED).get("status") == "True")
