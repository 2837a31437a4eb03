"""The pinned modules, our mains and the lock file agree with `versions.py`, the catalogue and the manifests."""

import re

import pytest

from hack.lab.base.paths import REPO
from hack.lab.build import catalog
from hack.lab.build.catalog import Tool
from hack.lab.images import rayimage

MODULES = REPO / "hack" / "lab" / "modules"

KUBERNETES = [tool for tool in catalog.BUILDABLE if tool.name == "kubernetes"]


def pins(source: str) -> list[str]:
    return (MODULES / source / "go.mod").read_text().splitlines()


@pytest.mark.parametrize("tool", (*catalog.BUILDABLE, *catalog.UNBUILT), ids=lambda tool: tool.key)
def test_the_module_is_pinned_at_the_version_that_we_name(tool: Tool) -> None:
    assert any(
        re.search(rf"\b{re.escape(tool.module)} {re.escape(tool.version)}( |$)", line) for line in pins(tool.source)
    )


@pytest.mark.parametrize("tool", KUBERNETES, ids=lambda tool: tool.key)
def test_all_of_kubernetes_has_one_version(tool: Tool) -> None:
    of_its_own = tool.version.replace("v1.", "v0.")
    parts = [line.split() for line in pins(tool.source) if " => " in line]
    assert len(parts) > 25
    assert {(old == new, version) for old, _, new, version in parts} == {(True, of_its_own)}


@pytest.mark.parametrize("tool", KUBERNETES, ids=lambda tool: tool.key)
def test_every_version_of_kubernetes_is_the_same_main(tool: Tool) -> None:
    main = MODULES / tool.source / "kubernetes" / "main.go"
    assert main.resolve() == MODULES / "shared/kubernetes/main.go"
    assert tool.programs["kubelet"] == f"{tool.ours}/kubernetes"
    assert f"module {tool.ours}" in pins(tool.source)


def test_one_binary_has_every_server_of_kubernetes() -> None:
    cases = re.findall(r'case "([a-z-]+)":', (MODULES / "shared/kubernetes/main.go").read_text())
    assert sorted([*cases, "kubectl"]) == sorted(catalog.named("kubernetes").programs)


def test_our_coredns_has_the_plugins_that_its_configuration_uses_and_no_other() -> None:
    main = (MODULES / "shared/coredns/main.go").read_text()
    corefile = (REPO / "hack/lab/cluster/coredns.yaml").read_text().partition("Corefile: |")[2].partition("---")[0]
    used = set(re.findall(r"^ {8}([a-z]+)\b", corefile, re.MULTILINE))
    elsewhere = (REPO / "hack/testbed/workerclusters.py").read_text()  # a cluster's DNS for names of other clusters
    used |= set(re.findall(r"\b(errors|rewrite|forward)\b (?:stop|\. )", elsewhere))
    assert used == set(re.findall(r"coredns/plugin/([a-z]+)", main))


@pytest.mark.parametrize("version", rayimage.LOCKS)
def test_the_lock_file_holds_the_ray_that_we_name(version: str) -> None:
    assert f"\nray=={version} " in rayimage.LOCKS[version].read_text()
