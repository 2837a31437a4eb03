"""A user with rights in one namespace of the manager reaches its workers in another cluster, and no others.

On real API servers, kubelets and containers. The test does the controller's part by hand, because a worker that only
prints needs no Ray. A pod of the manager is held by the gate, and its remote pod in east is an ordinary pod with the
labels of one.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from adapter import membership, names
from adapter.access import grant, policy_check
from adapter.shell.shipped_policies import access_policy
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed import clusters, progress
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.rights import may
from hack.testbed.stage import Stage, added

pytestmark = pytest.mark.alone  # a component comes and goes

POD, CONTAINER, IMAGE = "worker-a", "ray-worker", "rayproject/ray:2.60.0"
# It prints once a second, and answers on a port what it was asked.
PROGRAM = """
import http.server, threading, time
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
threading.Thread(target=http.server.HTTPServer(("", 8000), Echo).serve_forever, daemon=True).start()
for number in range(10_000):
    print("line", number, flush=True); time.sleep(0.2)
"""
WORKER = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
_RIGHTS = {names.LOGS_ROLE: ("get", "pods/log"), names.EXEC_ROLE: ("create", "pods/exec")}
_POLICY = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
VIEW = ("view",)
EDIT = ("edit",)


@pytest.fixture(scope="module")
def component(parked: clusters.Clusters) -> Iterator[clusters.Clusters]:
    """The clusters with the component, and with logs and commands allowed in the namespace `default` of east."""
    manager, east = parked.manager, parked.workers["east"]
    overlays = [REPO / "kustomize/overlays" / f"worker-{what}" for what in ("logs", "exec")]
    with ExitStack() as stack:
        for folder in overlays:
            east.kubectl("apply", "-k", folder)
            stack.callback(east.kubectl, "delete", "-k", folder, "--ignore-not-found")
        stack.enter_context(added(manager, "worker-access"))
        server = f"deployment/{names.ACCESS_ACCOUNT}"
        manager.kubectl("-n", names.SYSTEM_NAMESPACE, "rollout", "status", server, "--timeout=90s")
        wait(lambda: _judged_now(manager), 30, "the policy judges what is created from now on")
        yield parked


def _judged_now(manager: Cluster) -> bool:
    """Whether a grant that is made now counts as judged: for some seconds after the component has come none does."""
    policy, binding = (manager.get(kind, names.ACCESS_POLICY) for kind in _POLICY)
    return policy_check.problem(policy, binding, access_policy(), datetime.now(UTC)) is None


class Scene:
    """A worker in east, and people in the manager."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.folder = stage, folder
        self.manager, self.east = stage.manager, stage.fleet.workers["east"]

    def allow(self, *roles: str) -> None:
        """Let the manager do more in east, as docs/logs.md tells its administrator."""
        account = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{names.WORKER_ACCOUNT}"
        for role in roles:
            self.east.kubectl("-n", self.stage.name, "create", "rolebinding", role, f"--clusterrole={role}", account)
            self._wait_for(*_RIGHTS[role])

    def _wait_for(self, verb: str, what: str) -> None:
        wait(lambda: may(self.east, WORKER, verb, what, f"-n {self.stage.name}"), 20, "the right is known")

    def person(self, name: str, *roles: str, proxy: bool = True) -> Path:
        """The kubeconfig of a user with ClusterRoles in this namespace of the manager, and the Service's proxy only."""
        kubectl, account = self.manager.kubectl, f"{self.stage.name}:{name}"
        kubectl("-n", self.stage.name, "create", "serviceaccount", name)
        for role in roles:
            kubectl(
                "-n",
                self.stage.name,
                "create",
                "rolebinding",
                f"{name}-{role}",
                f"--clusterrole={role}",
                f"--serviceaccount={account}",
            )
        if proxy:
            who = ("rolebinding", f"test-{name}-{self.stage.name}")
            kubectl(
                "-n",
                names.SYSTEM_NAMESPACE,
                "create",
                *who,
                f"--role={names.ACCESS_ROLE}",
                f"--serviceaccount={account}",
            )
        token = kubectl("-n", self.stage.name, "create", "token", name).strip()
        config = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = self.stage.name
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(json.dumps(config))
        return file

    def begin(self) -> Raw:
        """Make the manager's pod and its copy, which runs then; returns the former."""
        slot = {names.SLOT_ANNOTATION: "east/1/role/0"}
        spec = {"containers": [{"name": CONTAINER, "image": IMAGE, "command": ["python3", "-c", PROGRAM]}]}
        held = {
            "schedulingGates": [{"name": names.GATE}],
            "nodeSelector": {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE},
        }
        self.manager.apply(yaml.safe_dump(self._pod({"annotations": slot}, {**spec, **held})))
        pod = self.manager.get("pods", POD, self.stage.name)
        uid = self.manager.get("namespaces", "kube-system")
        labels = {names.MANAGER_LABEL: membership.cluster_identity_of(uid), names.POD_UID_LABEL: pod["metadata"]["uid"]}
        self.east.apply(yaml.safe_dump(self._pod({"labels": labels}, spec)))
        wait(lambda: "line 3" in self.east.log(POD, self.stage.name), 60, "the copy prints", self.dump)
        self._mirror()
        return pod

    def _mirror(self) -> None:
        """Say in the manager that the pod runs, as the controller would: kubectl forwards no port to one that waits."""
        running = json.dumps({"status": {"phase": "Running"}})
        self.manager.kubectl(
            *("-n", self.stage.name, "patch", "pod", POD, "--subresource=status", "--type=merge", "-p", running)
        )

    def _pod(self, about: Raw, spec: Raw) -> Raw:
        metadata = {"namespace": self.stage.name, "name": POD, **about}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def dump(self) -> str:
        return self.east.kubectl("-n", self.stage.name, "describe", "pods")


@pytest.fixture
def scene(component: clusters.Clusters, process: Controller, stage: Stage, tmp_path: Path) -> Iterator[Scene]:
    """No controller runs: `process` is not started."""
    stage.build({"east": 1})
    made = Scene(stage, tmp_path)
    yield made
    kubectl = stage.manager.kubectl
    bound = stage.manager.items("rolebindings", names.SYSTEM_NAMESPACE)
    for one in bound:
        if one["metadata"]["name"].endswith(stage.name):
            kubectl("-n", names.SYSTEM_NAMESPACE, "delete", "rolebinding", one["metadata"]["name"])


def test_who_may_read_logs_in_the_manager_reads_those_of_a_worker_elsewhere(scene: Scene) -> None:
    """And nobody else: not who lacks pods/log, not who lacks the Service's proxy, and no command is run by it."""
    alice = scene.person("alice", *VIEW)
    scene.manager.kubectl(
        *("-n", scene.stage.name, "create", "role", "looks", "--verb=create", "--resource=workeraccesses.rayspan.dev")
    )
    bob = scene.person("bob")
    _bind_role(scene, "bob", "looks")
    _bind_pods(scene, "bob")
    scene.begin()

    told = _rayspan(alice, "logs", POD, "--tail", "3")
    assert told.returncode == 1 and "does not allow the manager to use pods/log" in told.stderr, told
    scene.allow(names.LOGS_ROLE)
    told = _rayspan(alice, "logs", POD, "--tail", "3")
    lines = told.stdout.splitlines()
    assert len(lines) == 3 and all(line.startswith("line ") for line in lines), told

    followed = [*_command(alice, "logs", "-f", f"pod/{POD}", "--tail", "1")]
    with subprocess.Popen(followed, cwd=REPO, env=_env(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        numbers = [int(next(child.stdout).split()[1]) for _ in range(8)]
        child.terminate()
    assert numbers == [*range(numbers[0], numbers[0] + 8)], "as they come, none twice and none left out"

    told = _rayspan(bob, "logs", POD)
    assert (told.returncode, told.stdout) == (1, ""), told
    assert told.stderr == (
        f"WorkerAccess for pod {POD}: you may not get pods/log in namespace {scene.stage.name} of the manager. Ask its "
        "administrator for a Role with that right; the Role view includes pods/log, and edit includes the others.\n"
    )
    told = _rayspan(alice, "exec", POD, "--", "true")
    assert told.returncode == 1 and "you may not create pods/exec" in told.stderr, told

    carol = scene.person("carol", *VIEW, proxy=False)
    told = _rayspan(carol, "logs", POD)
    assert told.returncode == 1 and f"--role={names.ACCESS_ROLE} --user=system:serviceaccount:" in told.stderr, told

    _nothing_is_told(scene)


@pytest.mark.long  # the short tier asks for logs and grants, and tests/unit/access what is decided
def test_a_command_runs_once_with_what_is_typed_and_ports_and_files_pass(scene: Scene, tmp_path: Path) -> None:
    """A user who may exec in the manager, after the worker's administrator allowed it: stdin, exit code, both
    outputs, single use."""
    dave = scene.person("dave", *EDIT)
    scene.begin()
    told = _rayspan(dave, "exec", POD, "--", "true")
    assert told.returncode == 1 and "does not allow the manager to use pods/exec" in told.stderr, told
    scene.allow(names.EXEC_ROLE)
    for _ in range(5):  # the end of a command is a race between what it says last and its connection
        told = _rayspan(dave, "exec", POD, "--", "true")
        assert (told.returncode, told.stderr) == (0, ""), told

    told = _rayspan(dave, "exec", "-i", POD, "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="a b\n" * 50_000)
    assert (told.returncode, told.stdout) == (7, "a b\n" * 50_000), told.stderr[-500:]
    assert told.stderr.startswith("err\n")

    (tmp_path / "sent").mkdir()
    (tmp_path / "sent/data").write_bytes(bytes(range(256)) * 4096)
    told = _rayspan(dave, "cp", str(tmp_path / "sent"), f"{POD}:/tmp/there")
    assert told.returncode == 0, told
    told = _rayspan(dave, "cp", f"{POD}:/tmp/there", str(tmp_path / "fetched"))
    assert told.returncode == 0, told
    assert (tmp_path / "fetched/data").read_bytes() == (tmp_path / "sent/data").read_bytes()

    with _forwarded(dave, 8000) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
        asked.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: asked.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200") and answer.endswith(b"/hello"), answer


def test_a_grant_is_for_one_pod_one_use_and_its_key(scene: Scene) -> None:
    """By hand, as somebody who would like more: each time a sentence, and nothing of the worker."""
    dave = scene.person("dave", *EDIT)
    pod = scene.begin()
    scene.allow(names.LOGS_ROLE, names.EXEC_ROLE)
    key = "k" * 43
    name = _granted(scene, dave, grant.manifest(pod, grant.LOG, key))
    log = f"api/v1/namespaces/{scene.stage.name}/pods/{POD}/log"
    assert "line 0" in _raw(scene, dave, name, key, log)
    for other_key, path, said in (
        ("j" * 43, log, "There is no WorkerAccess of this name that matches this key"),
        (key, log.replace("/log", "/exec"), "is for log, not for exec"),
        (key, log.replace(POD, "other"), f"is for pod {POD}, not for other"),
        (key, f"{log}?insecureSkipTLSVerifyBackend=true", "insecureSkipTLSVerifyBackend cannot be set"),
        (key, f"api/v1/namespaces/{scene.stage.name}/secrets", "Nothing is answered here"),
        (key, "api/v1/nodes", "Nothing is answered here"),
    ):
        with pytest.raises(LabError, match=said):
            _raw(scene, dave, name, other_key, path)

    # It cannot be changed, kept by a finalizer, or be of somebody's choice for a pod that is another one by now.
    access = f"workeraccess/{name}"
    patch = json.dumps({"spec": {"subresource": "exec", "command": ["ls"]}})
    with pytest.raises(LabError, match="cannot be changed"):
        scene.manager.kubectl("-n", scene.stage.name, "patch", access, "--type=merge", "-p", patch)
    for field, held in (("finalizers", ["example.com/stay"]), ("annotations", {"a": "b"}), ("labels", {"a": "b"})):
        kept = grant.manifest(pod, grant.LOG, key)
        kept["metadata"][field] = held
        with pytest.raises(LabError, match="has no annotations, labels, finalizers or owners, so create it without"):
            _granted(scene, dave, kept)
    kept = grant.manifest({"metadata": {**pod["metadata"], "uid": "another"}}, grant.LOG, key)
    name = _granted(scene, dave, kept)
    with pytest.raises(LabError, match="was replaced"):
        _raw(scene, dave, name, key, log)

    # Who deletes one so that the garbage collector holds it for a moment has it deleted all the same; a new kind it
    # learns of in half a minute.
    name = _granted(scene, dave, grant.manifest(pod, grant.LOG, key))
    scene.manager.kubectl(
        *("-n", scene.stage.name, "delete", f"workeraccess/{name}", "--cascade=foreground", "--timeout=60s")
    )

    # Somebody's own pod that claims to have a place in east does not lead to the pod of that name there.
    scene.manager.delete("pod", POD, scene.stage.name)
    slot = {names.SLOT_ANNOTATION: "east/1/role/0"}
    spec = {"containers": [{"name": CONTAINER, "image": IMAGE}], "schedulingGates": [{"name": names.GATE}]}
    scene.manager.apply(yaml.safe_dump(scene._pod({"annotations": slot}, spec)))
    told = _rayspan(dave, "logs", POD)
    assert told.returncode == 1 and "has no remote pod in east that belongs to it" in told.stderr, told


@pytest.mark.long
def test_nobody_is_let_in_while_nobody_judges(scene: Scene) -> None:
    """Without the policy, or with one that only warns, access is denied. Grants made meanwhile stay denied when it
    denies again."""
    dave, eve = scene.person("dave", *EDIT), scene.person("eve", *VIEW)
    pod = scene.begin()
    scene.allow(names.LOGS_ROLE, names.EXEC_ROLE)
    key, path = "k" * 43, f"api/v1/namespaces/{scene.stage.name}/pods/{POD}"
    _deny(scene, ["Warn"])
    try:
        told = _rayspan(dave, "logs", POD, "--tail", "1")
        assert (
            told.returncode
            and 'its binding has spec.validationActions ["Warn"], where ["Deny"] is shipped, so nothing' in told.stderr
        ), told
        body = grant.manifest(pod, grant.EXEC, key, command=["ls"])
        name = wait(lambda: _granted_if_he_may(scene, eve, body), 20, "the policy only warns")
    finally:
        _deny(scene, ["Deny"])
    told = _rayspan(dave, "logs", POD, "--tail", "1")
    assert told.returncode == 0 or "so they may not have checked it: run `kubectl rayspan` again" in told.stderr, told
    wait(lambda: _rayspan(dave, "logs", POD, "--tail", "1").returncode == 0, 30, "grants of now are good")
    with pytest.raises(LabError, match="so they may not have checked it"):
        _raw(scene, eve, name, key, path)


def _deny(scene: Scene, actions: list[str]) -> None:
    binding = f"validatingadmissionpolicybinding/{names.ACCESS_POLICY}"
    patch = json.dumps({"spec": {"validationActions": actions}})
    scene.manager.kubectl("patch", binding, "--type=merge", "-p", patch)


def _bind_role(scene: Scene, who: str, role: str) -> None:
    account = f"--serviceaccount={scene.stage.name}:{who}"
    scene.manager.kubectl("-n", scene.stage.name, "create", "rolebinding", f"{who}-{role}", f"--role={role}", account)


def _bind_pods(scene: Scene, who: str) -> None:
    scene.manager.kubectl("-n", scene.stage.name, "create", "role", "pods", "--verb=get", "--resource=pods")
    _bind_role(scene, who, "pods")


def _nothing_is_told(scene: Scene) -> None:
    """The access server's log says who was reached by which grant, and no key; nor does a grant."""
    log = scene.manager.kubectl("-n", names.SYSTEM_NAMESPACE, "logs", f"deployment/{names.ACCESS_ACCOUNT}")
    assert f"log of pod {scene.stage.name}/{POD} in east, by WorkerAccess kubectl-" in log
    assert "/proxy/" not in log and "Bearer" not in log and "Traceback" not in log
    for one in scene.manager.items("workeraccesses", scene.stage.name):
        assert one["spec"].keys() == {"pod", "podUID", "subresource", "keyHash"}


def _granted(scene: Scene, who: Path, body: Raw) -> str:
    """Create a grant as somebody; returns its name."""
    person = Cluster("manager", who)
    return person.kubectl("create", "-f", "-", "-o", "jsonpath={.metadata.name}", input=json.dumps(body))


def _granted_if_he_may(scene: Scene, who: Path, body: Raw) -> str:
    try:
        return _granted(scene, who, body)
    except LabError:
        return ""


def _raw(scene: Scene, who: Path, name: str, key: str, path: str) -> str:
    """What is answered to a request through the API server, as kubectl would send it."""
    proxy = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.ACCESS_SERVICE_PROXY}/proxy"
    return Cluster("manager", who).kubectl("get", "--raw", f"{proxy}/{scene.stage.name}/{name}/{key}/{path}")


def _rayspan(kubeconfig: Path, verb: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command as a process."""
    command = _command(kubeconfig, verb, *words)
    return progress.without(
        subprocess.run(
            command, cwd=REPO, env=_env(), input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
    )


def _command(kubeconfig: Path, verb: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "adapter", verb, "--kubeconfig", str(kubeconfig), *words]


def _env() -> Mapping[str, str]:
    """With the lab's kubectl first, as a user has one."""
    return {**os.environ, "PATH": f"{Path(clusters.program()).parent}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def _forwarded(kubeconfig: Path, port: int) -> Iterator[int]:
    """Lead a port of this machine to the worker for a while; gives its number here."""
    command = _command(kubeconfig, "port-forward", POD, f":{port}")
    with subprocess.Popen(command, cwd=REPO, env=_env(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = next(child.stdout, "")  # Forwarding from 127.0.0.1:40000 -> 8000
        try:
            yield int(said.partition("127.0.0.1:")[2].partition(" ")[0])
        finally:
            child.terminate()
