"""Does the README keep its word: every command in it works, in the order in which they stand, and every object is accepted?

The clusters have the contexts that the README speaks of. The tests of the commands build on each other, as the README's
sections do. What they install is installed already, so nothing changes; what would remove it is a dry run.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from adapter import names
from hack.demo import job
from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.testbed import clusters, install
from hack.testbed.clusters import Cluster, Clusters

_README = (REPO / "README.md").read_text()
_MAKEFILE = (REPO / "Makefile").read_text()
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_UNFINISHED = ("|", "\\")  # a line that ends so goes on in the next
_PATIENCE = 330.0  # seconds; the longest is the wait for the sample job, which gives up after 300
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

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text.splitlines()[0][:70]}"


@dataclass(frozen=True)
class Shell:
    """A shell in the checkout, with kubectl and with the contexts manager, east and west."""

    environment: Mapping[str, str]

    def run(self, command: str, input: str | None = None) -> None:
        """Run a command line; a failure shows what it said."""
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


def _blocks(language: str) -> list[Snippet]:
    found = ((match, _README.count("\n", 0, match.start(3)) + 1) for match in _FENCE.finditer(_README))
    return [Snippet(line, match[3]) for match, line in found if match[2] == language]


def _commands(block: Snippet) -> Iterator[Snippet]:
    begun: list[str] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        begun.append(line)
        if not line.endswith(_UNFINISHED):
            yield Snippet(number - len(begun) + 1, "\n".join(begun))
            begun = []


_COMMANDS = [command for block in _blocks("sh") for command in _commands(block)]
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
    plugin = folder / "kubectl-rayspan"  # what `pip install .` makes of the checkout
    plugin.write_text(_PLUGIN)
    plugin.chmod(0o755)
    yield Shell({**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
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
    for target in re.findall(r"`make ([a-z-]+)`", _README):
        assert re.search(rf"^{target}:.*## ", _MAKEFILE, re.MULTILINE), f"make help does not list {target}"


@pytest.mark.parametrize("command", _LAB, ids=str)
def test_command_on_the_lab(lab: Clusters, command: Snippet) -> None:
    Shell(os.environ).run(command.text)


@pytest.mark.parametrize("command", _INSTALL, ids=str)
def test_command(shell: Shell, command: Snippet) -> None:
    """In order: the account, the controller, its kubeconfigs, the queue, a job, looking at it, and removing it."""
    shell.run(_harmless(command.text))


def test_the_installation_is_the_one_that_was_there(shell: Shell) -> None:
    """Whoever follows the README has what the overlays of the demo make, and a controller that runs."""
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


def test_nothing_is_left_out() -> None:
    """Every fence is of a kind that is looked at, and the parts that a reader needs are there."""
    assert {match[2] for match in _FENCE.finditer(_README)} == {"sh", "yaml", "text"}
    assert _README.count("```") == 2 * len(_FENCE.findall(_README))
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
    (tested,) = (line for line in _README.splitlines() if line.startswith("It is tested with "))
    assert re.search(rf"\b{program} {re.escape(version.removeprefix('v'))}\b", tested)


def _deployed(manager: Cluster) -> bool:
    found = manager.get("deployments", install.CONTROLLER, names.SYSTEM_NAMESPACE)
    return bool(found["spec"]["replicas"] and found["status"].get("availableReplicas"))


def _merged(fleet: Clusters) -> dict[str, Any]:
    """One kubeconfig with a context for each cluster, by the names that the README uses."""
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


def _harmless(command: str) -> str:
    """What would remove the installation, or give a right to people, only asks whether it could."""
    dry = " delete -k " in command or " create rolebinding " in command
    return f"{command} --dry-run=server" if dry else command
