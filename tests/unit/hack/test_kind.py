"""Three kind clusters can form a fleet: separate pod addresses, a route between any two, and the images that they need.
Docker is not needed."""

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.demo import __main__ as demo
from hack.kind import __main__ as program
from hack.kind import addons, clusters, engine, programs
from hack.kind.clusters import CLUSTERS
from hack.lab.base import commands, versions
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.release.overlays import DEVELOPED
from hack.testbed import install

ADDRESSES = {"mgr": "172.18.0.2", "east": "172.18.0.3", "west": "172.18.0.4"}
CONFIGURATIONS = [yaml.safe_load(clusters.configuration(cluster, versions.KIND_NODE)) for cluster in CLUSTERS]
KUBEADM = [yaml.safe_load(each["kubeadmConfigPatches"][0]) for each in CONFIGURATIONS]
ENOUGH = {"NCPU": 4, "MemTotal": 16 * 1024**3}


def test_the_configuration_has_one_node_of_the_tested_minor_version() -> None:
    for cluster, configuration in zip(CLUSTERS, CONFIGURATIONS, strict=True):
        assert (configuration["kind"], configuration["apiVersion"], configuration["name"]) == (
            "Cluster",
            "kind.x-k8s.io/v1alpha4",
            cluster.kind,
        )
        assert configuration["nodes"] == [{"role": "control-plane", "image": versions.KIND_NODE}]
    minor = versions.KUBERNETES.rpartition(".")[0]
    assert re.fullmatch(rf"kindest/node:{re.escape(minor)}\.\d+@sha256:[0-9a-f]{{64}}", versions.KIND_NODE)


def test_the_hosting_service_runs_the_demo_with_this_release_of_kind() -> None:
    workflow = (REPO / ".github/workflows/pull-request.yaml").read_text()
    assert f"sigs.k8s.io/kind@{versions.KIND}\n" in workflow and "make kind-demo" in workflow


def test_no_two_clusters_share_an_address() -> None:
    networks = [IPv4Network(kubeadm["networking"]["podSubnet"]) for kubeadm in KUBEADM]
    networks += [IPv4Network(configuration["networking"]["serviceSubnet"]) for configuration in CONFIGURATIONS]
    assert len(networks) == 6
    assert [two for two in combinations(networks, 2) if two[0].overlaps(two[1])] == []
    docker = IPv4Network("172.16.0.0/12")  # Docker's range of networks
    assert not any(network.overlaps(docker) for network in networks)


def test_the_senders_of_packets_to_pods_alone_are_not_masked() -> None:
    """kind's network plugin gets the block of all clusters, kubeadm the cluster's own."""
    for configuration, kubeadm in zip(CONFIGURATIONS, KUBEADM, strict=True):
        unmasked = IPv4Network(configuration["networking"]["podSubnet"])
        assert all(IPv4Network(cluster.pods).subnet_of(unmasked) for cluster in CLUSTERS)
        assert IPv4Network(kubeadm["networking"]["podSubnet"]) != unmasked
        assert not IPv4Network(configuration["networking"]["serviceSubnet"]).overlaps(unmasked)


def test_each_node_has_a_route_to_the_pods_of_the_others() -> None:
    commands = [shlex.join(command) for command in clusters.routes(ADDRESSES)]
    assert len(commands) == 6
    assert "exec rayspan-mgr-control-plane ip route replace 10.65.0.0/16 via 172.18.0.3" in commands
    assert "exec rayspan-east-control-plane ip route replace 10.66.0.0/16 via 172.18.0.4" in commands
    for cluster in CLUSTERS:
        assert not any(f"{cluster.node} ip route replace {cluster.pods} " in command for command in commands)


def test_the_workers_are_those_of_the_overlay() -> None:
    fleet = yaml.safe_load_all((REPO / "kustomize/overlays/demo-fleet/fleet.yaml").read_text())
    workers = {each["metadata"]["name"] for each in fleet if each["kind"] == "WorkerCluster"}
    assert {cluster.name for cluster in CLUSTERS} == {clusters.MANAGER, *workers}


@pytest.mark.parametrize("present", [(), ("docker", "git", "kubectl")], ids=["nothing", "no kind"])
def test_missing_programs_are_reported_first(
    present: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in present else None)
    assert program.main(["demo"]) == 1
    missing = "kind cannot be found" if present else "docker, git, kind and kubectl cannot be found"
    assert missing in capsys.readouterr().err


@pytest.mark.parametrize(
    ("info", "words"),
    [
        pytest.param(ENOUGH, [], id="enough"),
        pytest.param(ENOUGH | {"NCPU": 1}, ["1 processor;"], id="one processor"),
        pytest.param(ENOUGH | {"MemTotal": 4 * 1024**3}, ["4.0 GiB"], id="little memory"),
        pytest.param({"ServerErrors": ["Is the docker daemon running?"]}, ["daemon running"], id="no answer"),
    ],
)
def test_an_engine_that_is_too_small_is_reported(info: dict[str, Any], words: list[str]) -> None:
    faults = list(engine.find_faults(info))
    assert len(faults) == len(words) and all(word in fault for word, fault in zip(words, faults, strict=True))


@pytest.mark.parametrize(
    ("info", "words"),
    [
        pytest.param(ENOUGH, [], id="enough"),
        pytest.param(ENOUGH | {"MemTotal": 8 * 1024**3}, ["memory"], id="little memory"),
        pytest.param(ENOUGH | {"CgroupVersion": "1"}, ["cgroup v1"], id="an old kernel"),
    ],
)
def test_what_may_go_wrong_is_hinted(info: dict[str, Any], words: list[str]) -> None:
    hints = list(engine.engine_hints(info))
    assert len(hints) == len(words) and all(word in hint for word, hint in zip(words, hints, strict=True))


@pytest.mark.parametrize(("limit", "count"), [("128", 1), ("512", 0), (None, 0)])
def test_a_small_limit_of_inotify_is_hinted(tmp_path: Path, limit: str | None, count: int) -> None:
    if limit:
        (tmp_path / "max_user_instances").write_text(f"{limit}\n")
    assert len(list(engine.inotify_hints(tmp_path))) == count


@pytest.mark.parametrize(
    ("image", "architecture", "name"),
    [
        (engine.RAY_IMAGE, "amd64", engine.RAY_IMAGE),
        (engine.RAY_IMAGE, "arm64", f"{engine.RAY_IMAGE}-aarch64"),
        (engine.KUEUE_IMAGE, "arm64", engine.KUEUE_IMAGE),
    ],
)
def test_rays_image_for_arm_has_another_name(image: str, architecture: str, name: str) -> None:
    assert engine.published_name(image, architecture) == name


@pytest.mark.parametrize(
    ("api_versions", "option"),
    [
        (["1.41", "1.50"], []),
        (["1.50", "1.41"], []),
        (["1.48", "1.50"], ["--platform=linux/arm64"]),
    ],
)
def test_one_platform_is_saved_where_client_and_engine_know_several(api_versions: list[str], option: list[str]) -> None:
    assert engine.platform_option(api_versions, "arm64") == option


class Machine:
    """Docker, kind and kubectl: what they were told, and an end before a command with this number."""

    def __init__(self) -> None:
        self.ids = dict.fromkeys((engine.KUEUE_IMAGE, engine.KUBERAY_IMAGE, engine.RAY_IMAGE, DEVELOPED), "1")
        self.nodes: dict[str, str] = {}  # container -> its record
        self.loaded: dict[str, dict[str, str]] = {}  # cluster -> image -> id
        self.half_made = set[str]()  # clusters whose creation was interrupted
        self.applied: dict[str, set[str]] = {}  # kubeconfig -> manifests
        self.runs_image = ""  # of the controller
        self.commands, self.ends_before = 0, -1
        self._saved = ""

    def run(self, argv: Sequence[str | Path], *, input: str | None = None, **_: object) -> str:
        program, *words = [str(word) for word in argv]
        if words[:2] == ["create", "cluster"] and self.commands + 1 == self.ends_before:
            self.half_made.add(f"{clusters.PREFIX}{Path(words[-1]).stem}")
            self.loaded |= {name: {} for name in self.half_made}
        self._count()
        return {"docker": self._docker, "kind": self._kind, "kubectl": self._kubectl}[program](words, input or "")

    def _count(self) -> None:
        self.commands += 1
        if self.commands == self.ends_before:
            raise LabError("It was interrupted.")

    def _docker(self, words: list[str], text: str) -> str:
        match words:
            case ["image", "inspect", "--format", "{{.Id}}", image]:
                return self.ids[image]
            case ["image", "inspect", *_]:
                return "amd64"
            case ["info", *_]:
                return json.dumps(ENOUGH)
            case ["version", *_]:
                return json.dumps({"ApiVersion": "1.50", "Arch": "amd64"})
            case ["save", *_]:
                self._saved = words[-1]
                Path(words[words.index("--output") + 1]).touch()
            case ["exec", node, "cat", _]:
                return self.nodes.get(node, "")
            case ["exec", "--interactive", node, *_]:
                self.nodes[node] = text
        return ""

    def _kind(self, words: list[str], _: str) -> str:
        match words:
            case ["get", "clusters"]:
                return "\n".join(self.loaded)
            case ["delete", _, _, name, *_]:
                self.loaded.pop(name, None)
                self.half_made.discard(name)
                self.nodes.pop(f"{name}-control-plane", None)
                self.applied.pop(name.removeprefix(clusters.PREFIX), None)
            case ["create", *_, file]:
                name = f"{clusters.PREFIX}{Path(file).stem}"
                assert name not in self.loaded, "kind refuses a cluster that is there"
                self.loaded[name] = {}
            case ["get", "kubeconfig", _, name]:
                assert name not in self.half_made
            case ["load", _, _, _, name]:
                self.loaded[name][self._saved] = self.ids[self._saved]
        return f"kind {versions.KIND}"

    def _kubectl(self, words: list[str], _: str) -> str:
        cluster = Path(words[0].partition("=")[2]).stem
        if words[1] == "apply":
            self.applied.setdefault(cluster, set()).add(words[-1])
        return ""

    def install(self, *_: object, **__: object) -> None:
        self._count()
        self.runs_image = self.runs_image or self.loaded["rayspan-mgr"][DEVELOPED]

    def restart_controller(self, _: object) -> None:
        self._count()
        if self.runs_image:
            self.runs_image = self.loaded["rayspan-mgr"][DEVELOPED]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine()
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(programs, "run", machine.run)
    monkeypatch.setattr(programs, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(program, "_FILES", tmp_path)
    monkeypatch.setattr(program, "_SIDE_BY_SIDE", 1)
    monkeypatch.setattr(install, "install", machine.install)
    monkeypatch.setattr(install, "restart_controller", machine.restart_controller)
    monkeypatch.setattr(program, "_accept_workers", lambda _: None)  # it asks API servers
    monkeypatch.setattr(demo, "run_job", lambda _: [])
    return machine


def _check_complete(machine: Machine) -> None:
    assert machine.loaded == {
        "rayspan-mgr": machine.ids,
        **{
            name: {image: machine.ids[image] for image in (engine.KUEUE_IMAGE, engine.RAY_IMAGE)}
            for name in ("rayspan-east", "rayspan-west")
        },
    }
    assert machine.applied == {"mgr": {addons.KUBERAY, addons.KUEUE}, "east": {addons.KUEUE}, "west": {addons.KUEUE}}
    assert machine.runs_image == machine.ids[DEVELOPED]


def test_a_second_demo_repeats_nothing(machine: Machine) -> None:
    assert program.main(["demo"]) == 0
    _check_complete(machine)
    first = machine.commands
    assert program.main(["demo"]) == 0
    assert machine.commands - first < first / 2 + 10


@pytest.mark.parametrize("is_update", [False, True], ids=["new clusters", "a changed controller"])
def test_a_demo_goes_on_after_an_interrupt_at_any_command(machine: Machine, is_update: bool) -> None:
    if is_update:
        assert program.main(["demo"]) == 0
    number = 0
    while True:
        number += 1
        if is_update:
            machine.ids[DEVELOPED] = f"changed {number}"
        else:
            machine.loaded, machine.nodes, machine.applied, machine.runs_image = {}, {}, {}, ""
        machine.ends_before = machine.commands + number
        was_interrupted = program.main(["demo"]) == 1
        machine.ends_before = -1
        assert program.main(["demo"]) == 0
        _check_complete(machine)
        if not was_interrupted:
            break
    assert number > 30


def test_down_deletes_all_even_if_one_deletion_fails(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["demo"]) == 0
    machine.ends_before = machine.commands + 1
    assert program.main(["down"]) == 1
    assert [*machine.loaded] == ["rayspan-mgr"] and "interrupted" in capsys.readouterr().err


def test_a_failed_command_shows_its_reason_last() -> None:
    with pytest.raises(LabError) as failure:
        commands.run(["sh", "-c", "seq 100; echo the reason >&2; exit 3"])
    assert str(failure.value).endswith("100\nthe reason")
