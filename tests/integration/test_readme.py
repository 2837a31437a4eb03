"""The README and its pages are true: every command prints what they say, in their order, and every object is accepted.

The clusters have the contexts that the pages name. The tests of the commands build on each other, as the sections do.
What they install is installed already, so nothing changes; what would remove it is a dry run. Helm's commands are run
by test_helm.py, and Docker's are read (tests/unit/repo/test_install.py).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from adapter import __version__, names
from hack.demo import job
from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.release import __main__ as release
from hack.testbed import clusters, install
from hack.testbed.clusters import Cluster, Clusters

pytestmark = [pytest.mark.alone, pytest.mark.long]  # what the commands do to the clusters is theirs

# In the order in which their commands are run.
_NAMES = ("README.md", "docs/install.md", "docs/use.md", "docs/removing.md")
_PAGES = {name: (REPO / name).read_text() for name in _NAMES}
_MAKEFILE = (REPO / "Makefile").read_text()
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_UNFINISHED = ("|", "\\")  # a line that ends so goes on in the next
_PATIENCE = 330.0  # seconds; the longest is the wait for the sample job, which gives up after 300
_SOON = 60.0  # seconds until what was begun shows
_LOOKS = re.compile(r"^kubectl \S+ \S+ (-n \S+ )?(get|describe|logs) ")
_ELSEWHERE = ("docker ", "helm ")  # no machine of ours has the one; the other's are run by test_helm.py
_PLACES = {"# in the manager cluster": "manager", "# in each worker cluster": "east"}


_PLUGIN = f"""\
#!{sys.executable}
import sys
sys.path.insert(0, {str(REPO)!r})
from adapter.__main__ import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Snippet:
    """A fenced block, or one command of it."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page} line {self.line}: {self.text.splitlines()[0][:70]}"


@dataclass(frozen=True)
class Shell:
    """A shell in the checkout, with kubectl and with the contexts manager, east and west."""

    environment: Mapping[str, str]

    def run(self, command: str, input: str | None = None) -> str:
        """Run a command line, and return what it prints; a failure shows what it said."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=REPO,
            env=self.environment,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def shows(self, command: str, wanted: Sequence[str]) -> None:
        """Run a command line that prints something for each pattern; one that only reads is repeated, as a waiting
        user would."""
        said: list[str] = []

        def shown() -> bool:
            said.append(self.run(command))
            return not _missing(said[-1], wanted)

        patience = _SOON if _LOOKS.search(command) else 0
        clusters.wait(shown, patience, command, lambda: f"Not in it: {_missing(said[-1], wanted)}\n{said[-1]}")


def _blocks(language: str) -> list[Snippet]:
    return [
        Snippet(page, text.count("\n", 0, match.start(3)) + 1, match[3])
        for page, text in _PAGES.items()
        for match in _FENCE.finditer(text)
        if match[2] == language
    ]


def _commands(block: Snippet) -> Iterator[Snippet]:
    begun: list[str] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        begun.append(line)
        if not line.endswith(_UNFINISHED):
            yield Snippet(block.page, number - len(begun) + 1, "\n".join(begun))
            begun = []


def _applied(*objects: str) -> list[str]:
    return [rf"^{re.escape(one)} (created|configured|unchanged|serverside-applied)$" for one in objects]


def _deleted(*objects: str, dry: bool = True) -> list[str]:
    """Objects as kind.group/name; kubectl has quotes about the name when it deletes."""
    end = r" deleted.*\(server dry run\)$" if dry else r" deleted\b(?!.*dry run)"
    return [
        rf'^{re.escape(kind)} "{re.escape(name)}"{end}' for kind, _, name in (one.partition("/") for one in objects)
    ]


def _met(*objects: str) -> list[str]:
    return [rf"^{re.escape(one)} condition met$" for one in objects]


def _said(begin: str) -> list[str]:
    """The lines of the block that begins so, however wide their columns are."""
    (block,) = (block.text for block in _blocks("text") if block.text.startswith(begin))
    return [r"^" + r"\s+".join(map(re.escape, line.split())) + r"\s*$" for line in block.splitlines() if line]


def _missing(said: str, wanted: Sequence[str]) -> list[str]:
    return [pattern for pattern in wanted if not re.search(pattern, said, re.MULTILINE)]


_RBAC, _CRD = "rbac.authorization.k8s.io", "customresourcedefinition.apiextensions.k8s.io"
_ACCOUNT = ("serviceaccount/rayspan-worker", f"clusterrole.{_RBAC}/rayspan-worker-tenant")
_OPENED = f"rolebinding.{_RBAC}/rayspan-worker-tenant"  # the namespace `default`, to the manager's account
_CONTROLLER = (
    "deployment.apps/rayspan-controller",
    f"clusterrole.{_RBAC}/rayspan-controller",
    *(f"{_CRD}/{kind}.{names.DOMAIN}" for kind in ("workerclusters", "dispatchpolicies", "placements")),
    "mutatingadmissionpolicy.admissionregistration.k8s.io/rayspan-gate",
)
_FLEET = ("workercluster.rayspan.dev/east", "workercluster.rayspan.dev/west", "dispatchpolicy.rayspan.dev/everywhere")
_QUEUES = (
    "admissioncheck.kueue.x-k8s.io/rayspan",
    "clusterqueue.kueue.x-k8s.io/ray",
    "localqueue.kueue.x-k8s.io/ray",
)
_WORKER = r"^rayjob-pi-\S*worker\S* .*"
# A part of a command -> what it prints. Each command has one row, so that what is new on the pages needs one here.
_SHOWN: dict[str, list[str]] = {
    r"apply -k manifests/queues/worker": _applied("clusterqueue.kueue.x-k8s.io/ray", "localqueue.kueue.x-k8s.io/ray"),
    r"apply --server-side -f \$RELEASE/manager": _applied(*_CONTROLLER),
    r"label namespace rayspan-system": ["^namespace/rayspan-system (not )?labeled$"],
    r"rayspan join ": [
        "^worker cluster: serviceaccount/rayspan-worker (created|configured|unchanged)$",
        "^manager cluster: secret/(east|west) (created|configured|unchanged)$",
        (
            "^The token expires .*, in .* days\\. Renew it before that with `kubectl rayspan rotate "
            "(east|west)( --[a-z-]+ \\S+)+`\\.$"
        ),
        "^WorkerCluster (east|west) is connected\\.$",
        "^Next: DispatchPolicy .*everywhere.* sends workers there\\.$",
    ],
    r"apply -k kustomize/overlays/demo-fleet": _applied(*_FLEET),
    r"apply -k manifests/queues/manager": _applied(*_QUEUES),
    r"rollout status": ['^deployment "rayspan-controller" successfully rolled out$'],
    r"wait workerclusters --all": _met("workercluster.rayspan.dev/east", "workercluster.rayspan.dev/west"),
    r"wait dispatchpolicy/everywhere": _met("dispatchpolicy.rayspan.dev/everywhere"),
    r"wait admissioncheck": _met("admissioncheck.kueue.x-k8s.io/rayspan"),
    r"wait clusterqueue": _met("clusterqueue.kueue.x-k8s.io/ray"),
    r"rayspan preflight": [
        "^CLUSTER +API +RIGHTS +NAMESPACE +QUEUE +NAMES +IMAGE +DNS +PODNETWORK ",
        "^east +west +ok ",
        "^west +the manager +ok ",
        "^Ready.*: nothing was found that would keep workers from joining\\.$",
    ],
    r"rayspan version ": [f"^Client: {re.escape(__version__)}$", f"^Controller: {re.escape(__version__)}$"],
    r"rayspan plan ": _said("RayJob default/rayjob-pi: 4 workers"),
    r"create rolebinding": [rf"^rolebinding\.{re.escape(_RBAC)}/rayspan-plan created \(server dry run\)$"],
    r"apply -f manifests/samples/rayjob-pi": _applied("rayjob.ray.io/rayjob-pi", "configmap/rayjob-pi"),
    r"manager get pods -L": ["^NAME .* CLUSTER$", f"{_WORKER} east$", f"{_WORKER} west$", r"^rayjob-pi-\S*head"],
    r"east get pods -l": [_WORKER],
    r"wait rayjob": _met("rayjob.ray.io/rayjob-pi"),
    r"logs job/rayjob-pi": [r"^pi is about 3\.1", r"^[\d.]+ +east +east +[1-9]", r"^[\d.]+ +west +west +[1-9]"],
    r"get placements -o wide": [
        "^NAME +JOB +STATE +WORKERS +WHERE +AGE +WHY",
        r"^rayjob-pi-\S+ +rayjob-pi +Ended .*2 east, 2 west ",
    ],
    r"describe rayjob": ["^Name: +rayjob-pi$", r"^ +\w+ +Placed +"],
    r"describe workloads": ["^Name: +rayjob-rayjob-pi-", "^ +Name: +rayspan$", "^ +State: +Ready$"],
    r"get workerclusters -o wide": [
        "^NAME +ZONE +READY +CONNECTED .* REASON +MESSAGE",
        "^east +east +True ",
        "^west +west +True ",
    ],
    r"get lease": ["^NAME +HOLDER +AGE$", r"^rayspan-controller +rayspan-controller-\S+ "],
    r"logs deployment/rayspan-controller": [r"^\[pod/rayspan-controller-\S+\] "],
    r"rayspan list ": ["^NAME +KIND +QUEUE +STATE ", "^rayjob-pi +RayJob +ray +(Waits|Runs|Done) "],
    r"rayspan where ": ["^RayJob default/rayjob-pi$", "^Done: It has succeeded"],
    r"rayspan why ": ["^Done: It has succeeded"],
    r"rayspan watch ": ["^ +0 s  RayJob default/rayjob-pi: Done: It has succeeded"],
    r"rayspan top ": ["^CLUSTER +ZONE ", "^east +", "^west +"],
    r"rayspan check ": ["^Jobs can be dispatched[.]$"],
    r"rayspan cordon": ["^workercluster/west cordoned$"],
    r"rayspan drain": ["^workercluster/west draining$", "^workercluster/west drained$"],
    r"rayspan uncordon": ["^workercluster/west uncordoned$"],
    r"delete -f manifests/samples": _deleted("rayjob.ray.io/rayjob-pi", "configmap/rayjob-pi", dry=False),
    r"get placements -A": [r"\A(?!(?:.*\n)*default +\S+ +\S+ +(?!Ended |\s))"],  # none of ours that is not Ended
    r"delete -k manifests/queues/manager": _deleted(*_QUEUES),
    r"delete -k kustomize/overlays/demo-fleet": _deleted(*_FLEET),
    r"delete -f \$RELEASE/manager": _deleted(*_CONTROLLER, "namespace/rayspan-system"),
    r"delete -k manifests/queues/worker": _deleted("clusterqueue.kueue.x-k8s.io/ray", "localqueue.kueue.x-k8s.io/ray"),
    r"delete -f \$RELEASE/worker": _deleted(*_ACCOUNT, _OPENED, "namespace/rayspan-system"),
    r"hack\.lab status": [
        "^CLUSTER +API +NODE +KUEUE ",
        *(f"^{name} +yes +yes +yes " for name in ("mgr", "east", "west")),
    ],
    r"hack\.lab kubectl mgr get": [r"^workercluster\.rayspan\.dev/east ", r"^clusterqueue\.kueue\.x-k8s\.io/ray "],
    r"hack\.lab kubectl east get": [r"^clusterqueue\.kueue\.x-k8s\.io/ray "],
    r"hack\.lab\.images rayspan": [r"^/.*rayspan.*\.tar"],
}
_COMMANDS = [
    command for block in _blocks("sh") for command in _commands(block) if not command.text.startswith(_ELSEWHERE)
]
_MAKE = [command for command in _COMMANDS if command.text.startswith("make ")]
_LAB = [command for command in _COMMANDS if "hack.lab" in command.text]
_INSTALL = [command for command in _COMMANDS if command not in (*_MAKE, *_LAB)]


@pytest.fixture(scope="module")
def shell(deployed: None, fleet: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell for the commands, once the deployed controller is there: other tests send it away while they run."""
    fleet.manager.wait(lambda: _deployed(fleet.manager), _PATIENCE, "the deployed controller is there")
    folder = tmp_path_factory.mktemp("readme")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(_merged(fleet)))
    (folder / "kubectl").symlink_to(clusters.program())
    plugin = folder / "kubectl-rayspan"  # what `pipx install .` makes of the checkout
    plugin.write_text(_PLUGIN)
    plugin.chmod(0o755)
    release.write(folder / "release", "dev", "rayspan/rayspan")  # of the image that the lab runs
    own = {"KUBECONFIG": str(kubeconfig), "RELEASE": str(folder / "release")}
    yield Shell({**os.environ, **own, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    job.remove(fleet)


@pytest.fixture
def lab(fleet: Clusters, request: pytest.FixtureRequest) -> Clusters:
    """The clusters, if they are the lab."""
    if request.config.getoption("--manager"):
        pytest.skip("the tests run on other clusters than the lab")
    return fleet


@pytest.mark.parametrize("command", _MAKE, ids=str)
def test_make_knows_the_target(command: Snippet) -> None:
    _, *targets = command.text.split()
    for target in targets:
        assert re.search(rf"^{target}:.*## ", _MAKEFILE, re.MULTILINE), f"make help does not list {target}"
    subprocess.run(["make", "-n", *targets], cwd=REPO, check=True, capture_output=True, timeout=60)


def test_make_targets_in_the_text_exist() -> None:
    for target in re.findall(r"`make ([a-z-]+)`", "\n".join(_PAGES.values())):
        assert re.search(rf"^{target}:.*## ", _MAKEFILE, re.MULTILINE), f"make help does not list {target}"


@pytest.mark.parametrize("command", _LAB, ids=str)
def test_command_on_the_lab(lab: Clusters, command: Snippet) -> None:
    Shell(os.environ).shows(command.text, _rows(command)[0])


@pytest.mark.parametrize("command", _INSTALL, ids=str)
def test_command(shell: Shell, command: Snippet) -> None:
    """In order: the account, the controller, its kubeconfigs, the queue, a job, looking at it, and removing it."""
    shell.shows(_harmless(command.text), _rows(command)[0])


@pytest.mark.parametrize("command", [*_LAB, *_INSTALL], ids=str)
def test_it_is_known_what_a_command_shows(command: Snippet) -> None:
    assert len(_rows(command)) == 1


def test_no_row_is_left_of_a_command_that_is_gone() -> None:
    text = "\n".join(command.text for command in _COMMANDS)
    assert [part for part in _SHOWN if not re.search(part, text)] == []


def test_the_installation_is_the_one_that_was_there(shell: Shell) -> None:
    """Whoever follows them has what the overlays of the demo make, and a controller that runs."""
    shell.run("kubectl --context manager diff -k kustomize/overlays/demo")
    shell.run("kubectl --context manager diff -k kustomize/overlays/demo-fleet")
    shell.run("kubectl --context east diff -k kustomize/overlays/demo-worker")
    shell.run("kubectl --context west diff -k kustomize/overlays/demo-worker")


@pytest.mark.parametrize("block", _blocks("yaml"), ids=str)
def test_object_is_accepted(shell: Shell, block: Snippet) -> None:
    """The API server and Kueue's webhooks take it, and forget it again."""
    context = _PLACES[block.text.splitlines()[0]]
    how = "--server-side --force-conflicts --dry-run=server --validate=strict"
    shell.run(f"kubectl --context {context} apply {how} -f -", input=block.text)


def test_the_job_that_is_shown_fits_the_queues_that_are_applied(shell: Shell) -> None:
    (shown,) = (block.text for block in _blocks("yaml") if "kind: RayJob" in block.text)
    said = shell.run("kubectl rayspan plan --context manager -f -", input=shown)
    assert re.search(r"^Fits: 2 of 4 workers to east, 2 to west\.$", said, re.MULTILINE), said


def test_nothing_is_left_out() -> None:
    """Every fence is of a kind that is looked at, and the parts that a reader needs are there."""
    assert {match[2] for text in _PAGES.values() for match in _FENCE.finditer(text)} == {"sh", "yaml", "text"}
    assert all(text.count("```") == 2 * len(_FENCE.findall(text)) for text in _PAGES.values())
    assert _MAKE and _LAB and len(_INSTALL) > 20 and len(_blocks("yaml")) > 3


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("Kubernetes", versions.KUBERNETES),
        ("Kueue", versions.KUEUE),
        ("KubeRay", versions.KUBERAY),
        ("Ray", versions.RAY),
    ],
)
def test_it_names_the_versions_that_are_tested(program: str, version: str) -> None:
    tested = [line for text in _PAGES.values() for line in text.splitlines() if line.startswith("It is tested with ")]
    assert len(tested) == 2  # in the README, and for those who install it
    for line in tested:
        assert re.search(rf"\b{program} {re.escape(version.removeprefix('v'))}\b", line)


def _deployed(manager: Cluster) -> bool:
    found = manager.get("deployments", install.CONTROLLER, names.SYSTEM_NAMESPACE)
    return bool(found["spec"]["replicas"] and found["status"].get("availableReplicas"))


def _merged(fleet: Clusters) -> dict[str, Any]:
    """One kubeconfig with a context for each cluster, by the names that the pages use."""
    named = {"manager": fleet.manager, **fleet.workers}
    parts = {name: _kubeconfig(cluster) for name, cluster in named.items()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": n, "cluster": part["clusters"][0]["cluster"]} for n, part in parts.items()],
        "users": [{"name": n, "user": part["users"][0]["user"]} for n, part in parts.items()],
        "contexts": [{"name": n, "context": {"cluster": n, "user": n}} for n in parts],
    }


def _kubeconfig(cluster: Cluster) -> dict[str, Any]:
    text = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    found: dict[str, Any] = json.loads(text)
    return found


def _rows(command: Snippet) -> list[list[str]]:
    """What a command is to show."""
    return [wanted for part, wanted in _SHOWN.items() if re.search(part, command.text)]


def _harmless(command: str) -> str:
    """What would remove the installation, or give a right to people, only asks whether it could."""
    dry = any(word in command for word in (" delete -k ", " delete -f $RELEASE", " create rolebinding "))
    return f"{command} --dry-run=server" if dry else command
