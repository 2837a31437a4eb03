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

from hack.kind import __main__ as program
from hack.kind import clusters, engine
from hack.kind.clusters import CLUSTERS
from hack.kind.record import Record
from hack.lab.base import commands, versions
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.release.overlays import DEVELOPED

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
    assert "docker exec rayspan-mgr-control-plane ip route replace 10.65.0.0/16 via 172.18.0.3" in commands
    assert "docker exec rayspan-east-control-plane ip route replace 10.66.0.0/16 via 172.18.0.4" in commands
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
        pytest.param(ENOUGH | {"NCPU": 1}, ["1 processor(s)"], id="one processor"),
        pytest.param(ENOUGH | {"MemTotal": 4 * 1024**3}, ["4.0 GiB"], id="little memory"),
        pytest.param({}, ["0 processor(s)", "0.0 GiB"], id="no answer"),
    ],
)
def test_an_engine_that_is_too_small_is_reported(info: dict[str, Any], words: list[str]) -> None:
    faults = list(engine.find_faults(info))
    assert len(faults) == len(words) and all(word in fault for word, fault in zip(words, faults, strict=True))


@pytest.mark.parametrize(("limit", "has_hint"), [("128", True), ("512", False), (None, False)])
def test_a_small_limit_of_inotify_is_reported(tmp_path: Path, limit: str | None, has_hint: bool) -> None:
    file = tmp_path / "max_user_instances"
    if limit:
        file.write_text(f"{limit}\n")
    assert bool(engine.inotify_hint(file)) is has_hint


@pytest.mark.parametrize(
    ("image", "architecture", "name"),
    [
        (engine.RAY_IMAGE, "x86_64", engine.RAY_IMAGE),
        (engine.RAY_IMAGE, "aarch64", f"{engine.RAY_IMAGE}-aarch64"),
        (engine.KUEUE_IMAGE, "aarch64", engine.KUEUE_IMAGE),
    ],
)
def test_rays_image_for_arm_has_another_name(image: str, architecture: str, name: str) -> None:
    assert engine.published_name(image, architecture) == name


def test_an_engine_with_several_platforms_saves_one() -> None:
    assert engine.platform_option("1.41", "amd64") == []
    assert engine.platform_option("1.48", "arm64") == ["--platform=linux/arm64"]


class Docker:
    """Records the commands, and has images by these ids."""

    def __init__(self, ids: dict[str, str]) -> None:
        self.ids, self.loaded = ids, list[tuple[str, str]]()
        self._saved = ""

    def run(self, argv: Sequence[str | Path], **_: object) -> str:
        words = [str(word) for word in argv]
        if words[:3] == ["docker", "image", "inspect"]:
            return self.ids[words[-1]]
        if words[:2] == ["docker", "version"]:
            return json.dumps({"ApiVersion": "1.41", "Arch": "amd64"})
        if words[:2] == ["docker", "save"]:
            self._saved = words[-1]
            Path(words[words.index("--output") + 1]).touch()
        elif words[:2] == ["kind", "load"]:
            self.loaded.append((self._saved, words[-1]))
        return ""


def test_an_image_is_loaded_again_only_where_it_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker = Docker({DEVELOPED: "one", engine.RAY_IMAGE: "ray"})
    monkeypatch.setattr(engine, "run", docker.run)
    images = {DEVELOPED: CLUSTERS[:1], engine.RAY_IMAGE: CLUSTERS}

    def load() -> set[str]:
        docker.loaded.clear()
        records = {each.name: Record.read(tmp_path / f"{each.name}.json") for each in CLUSTERS}
        return engine.load_images(images, records, tmp_path)

    assert load() == set() and len(docker.loaded) == 4
    assert load() == set() and docker.loaded == []
    docker.ids[DEVELOPED] = "two"
    assert load() == {DEVELOPED} and docker.loaded == [(DEVELOPED, "rayspan-mgr")]
    (tmp_path / "east.json").unlink()  # a new cluster
    assert load() == set() and docker.loaded == [(engine.RAY_IMAGE, "rayspan-east")]
    assert not (tmp_path / "image.tar").exists()


def test_a_failed_command_shows_its_reason_last() -> None:
    with pytest.raises(LabError) as failure:
        commands.run(["sh", "-c", "seq 100; echo the reason >&2; exit 3"])
    assert str(failure.value).endswith("100\nthe reason")
