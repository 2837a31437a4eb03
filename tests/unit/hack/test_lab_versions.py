"""Do the pinned modules, our mains and the lock file say the same as `versions.py`, the catalogue and the manifests?"""

import re

import pytest

from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.build import catalog
from hack.lab.build.catalog import Tool
from hack.lab.images import rayimage

MODULES = REPO / "hack" / "lab" / "modules"


def pins(source: str) -> list[str]:
    return (MODULES / source / "go.mod").read_text().splitlines()


@pytest.mark.parametrize("tool", (*catalog.BUILDABLE, catalog.VOLCANO), ids=lambda tool: tool.name)
def test_the_module_is_pinned_at_the_version_that_we_name(tool: Tool) -> None:
    assert any(
        re.search(rf"\b{re.escape(tool.module)} {re.escape(tool.version)}( |$)", line) for line in pins(tool.source)
    )


def test_all_of_kubernetes_is_of_one_version() -> None:
    of_its_own = versions.KUBERNETES.replace("v1.", "v0.")
    parts = [line.split() for line in pins("shared") if " => " in line]
    assert len(parts) > 30
    assert {(old == new, version) for old, _, new, version in parts} == {(True, of_its_own)}


def test_one_binary_is_every_server_of_kubernetes() -> None:
    cases = re.findall(r'case "([a-z-]+)":', (MODULES / "shared/kubernetes/main.go").read_text())
    assert sorted([*cases, "kubectl"]) == sorted(catalog.named("kubernetes").programs)


def test_our_coredns_has_the_plugins_that_its_configuration_uses_and_no_other() -> None:
    main = (MODULES / "shared/coredns/main.go").read_text()
    corefile = (REPO / "hack/lab/cluster/coredns.yaml").read_text().partition("Corefile: |")[2].partition("---")[0]
    used = set(re.findall(r"^ {8}([a-z]+)\b", corefile, re.MULTILINE))
    elsewhere = (REPO / "hack/testbed/workerclusters.py").read_text()  # a cluster's DNS for the names of others
    used |= set(re.findall(r"\b(errors|rewrite|forward)\b (?:stop|\. )", elsewhere))
    assert used == set(re.findall(r"coredns/plugin/([a-z]+)", main))


def test_the_lock_file_holds_the_ray_that_we_name() -> None:
    assert f"\nray=={versions.RAY} " in rayimage.LOCK.read_text()
