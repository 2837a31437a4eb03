"""The versions of each cluster by the options, and the separation of two labs on one machine."""

import os
import subprocess
import sys
from ipaddress import IPv4Network
from itertools import combinations

import pytest

from hack.lab import cli
from hack.lab.base import choice, versions
from hack.lab.base.lab import Lab
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.lab.cluster import addons

CLUSTERS = ("mgr", "east", "west")


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({}, {}, id="no option"),
        pytest.param(
            {"kubernetes": ["west=1.34.4"]}, {"west": {"kubernetes": "v1.34.4"}}, id="a version for one cluster",
        ),
        pytest.param(
            {"kubernetes": ["west=v1.34.4"]}, {"west": {"kubernetes": "v1.34.4"}}, id="a version with a leading v",
        ),
        pytest.param(
            {"kueue": ["0.18.3"]}, {name: {"kueue": "v0.18.3"} for name in CLUSTERS}, id="a version for all clusters"
        ),
        pytest.param({"kuberay": ["1.5.1"]}, {"mgr": {"kuberay": "v1.5.1"}}, id="KubeRay runs in the manager alone"),
        pytest.param({"kuberay": ["mgr=1.5.1"]}, {"mgr": {"kuberay": "v1.5.1"}}, id="KubeRay with the manager named"),
        pytest.param(
            {"kubernetes": ["1.35.4", "mgr=1.36.3"], "kueue": ["west=0.18.3"]},
            {"east": {"kubernetes": "v1.35.4"}, "west": {"kubernetes": "v1.35.4", "kueue": "v0.18.3"}},
            id="a named cluster overrides all, and today's version is left out",
        ),
    ],
)  # fmt: skip
def test_the_versions_of_the_options(asked: dict[str, list[str]], want: choice.Versions) -> None:
    assert choice.versions(asked, CLUSTERS) == want


@pytest.mark.parametrize(
    ("component", "word", "said"),
    [
        pytest.param(
            "kubernetes", "west=1.30.1", "it has v1.34.4, v1.35.4, v1.36.3 and v1.37.2",
            id="an unpinned version",
        ),
        pytest.param("kubernetes", "north=1.35.4", "mgr, east and west may be meant", id="an unknown cluster"),
        pytest.param("kuberay", "west=1.5.1", "mgr may be meant", id="KubeRay in a worker cluster"),
        pytest.param("kueue", "west=", "knows no kueue v;", id="an empty version"),
    ],
)  # fmt: skip
def test_an_unavailable_version_is_an_error(
    component: str, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabError, match=f"^--{component} {word}: .*{said}"):
        choice.versions({component: [word]}, CLUSTERS)
    assert cli.main(["up", f"--{component}", word]) == 1  # before anything is started
    assert said in capsys.readouterr().err


def test_each_cluster_runs_the_wanted_versions_or_todays() -> None:
    lab = Lab(versions={"west": {"kubernetes": "v1.34.4", "kueue": "v0.18.3"}, "mgr": {"kuberay": "v1.5.1"}})
    assert [cluster.runs for cluster in lab.clusters] == [
        versions.TODAY._replace(kuberay="v1.5.1"),
        versions.TODAY,
        versions.TODAY._replace(kubernetes="v1.34.4", kueue="v0.18.3"),
    ]
    assert [addon.key for addon in addons.of(lab.cluster("west"))] == ["coredns", "kueue@v0.18.3"]
    assert [addon.key for addon in addons.of(lab.manager)] == ["coredns", "kuberay@v1.5.1", "kueue"]


_ALL = """
from hack.lab.base import lab, paths
from hack.lab.cluster import cgroups, network
clusters = lab.Lab(workers=lab.MOST_WORKERS).clusters
print(lab.SUBNET, *(cluster.fake_pods for cluster in clusters))
print(paths.STATE, network.SWITCH, network.LINK, cgroups.TOP, *(cluster.namespace for cluster in clusters))
"""


def test_labs_on_one_machine_share_no_address_and_no_name() -> None:
    labs = [_lab(number) for number in range(8)]
    networks = [(number, IPv4Network(block)) for number, (blocks, _) in enumerate(labs) for block in blocks]
    assert [(a, b) for (m, a), (n, b) in combinations(networks, 2) if m != n and a.overlaps(b)] == []
    names = [name for _, each in labs for name in each]
    assert len(names) == len({*names}) == 8 * (4 + 15 - 1)  # link and cgroup have one name
    assert max(map(len, names)) < 32
    assert "/var/lib/rayspan-lab" in labs[0][1]


@pytest.mark.parametrize("number", ["8", "12", "-1", "one"])
def test_a_lab_without_addresses_is_an_error(number: str) -> None:
    done = _python("from hack.lab.base import paths", number)
    assert done.returncode == 1
    said = f"RAYSPAN_LAB is {number}: a lab is one of 0 to 7, as many as there are blocks of addresses.\n"
    assert done.stderr == said


def _lab(number: int) -> tuple[list[str], set[str]]:
    """The lab's address blocks and names."""
    blocks, names = _python(_ALL, str(number)).stdout.splitlines()
    return blocks.split(), set(names.split())


def _python(program: str, number: str) -> subprocess.CompletedProcess[str]:
    where = {**os.environ, "RAYSPAN_LAB": number}
    return subprocess.run(
        [sys.executable, "-c", program], env=where, cwd=REPO, capture_output=True, text=True, check=False
    )
