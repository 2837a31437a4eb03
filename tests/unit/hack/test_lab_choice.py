"""Which versions does each cluster run, of the words that somebody said, and can two labs stand on one machine?"""

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
        pytest.param({}, {}, id="nothing"),
        pytest.param({"kubernetes": ["west=1.34.4"]}, {"west": {"kubernetes": "v1.34.4"}}, id="one cluster"),
        pytest.param({"kubernetes": ["west=v1.34.4"]}, {"west": {"kubernetes": "v1.34.4"}}, id="as Kubernetes writes it"),
        pytest.param({"kueue": ["0.18.3"]}, {name: {"kueue": "v0.18.3"} for name in CLUSTERS}, id="all of them"),
        pytest.param({"kuberay": ["1.5.1"]}, {"mgr": {"kuberay": "v1.5.1"}}, id="KubeRay is in the manager"),
        pytest.param({"kuberay": ["mgr=1.5.1"]}, {"mgr": {"kuberay": "v1.5.1"}}, id="which may be said"),
        pytest.param(
            {"kubernetes": ["1.35.4", "mgr=1.36.3"], "kueue": ["west=0.18.3"]},
            {"east": {"kubernetes": "v1.35.4"}, "west": {"kubernetes": "v1.35.4", "kueue": "v0.18.3"}},
            id="a later word goes before an earlier one, and today's is none",
        ),
    ],
)  # fmt: skip
def test_what_was_asked_for(asked: dict[str, list[str]], want: choice.Versions) -> None:
    assert choice.versions(asked, CLUSTERS) == want


@pytest.mark.parametrize(
    ("component", "word", "said"),
    [
        pytest.param("kubernetes", "west=1.30.1", "it has v1.34.4, v1.35.4, v1.36.3 and v1.37.2", id="a version that nobody pinned"),
        pytest.param("kubernetes", "north=1.35.4", "mgr, east and west may be meant", id="a cluster that there is not"),
        pytest.param("kuberay", "west=1.5.1", "mgr may be meant", id="KubeRay in a worker cluster"),
        pytest.param("kueue", "west=", "knows no kueue v;", id="no version"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(
    component: str, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabError, match=f"^--{component} {word}: .*{said}"):
        choice.versions({component: [word]}, CLUSTERS)
    assert cli.main(["up", f"--{component}", word]) == 1  # before anything is started
    assert said in capsys.readouterr().err


def test_each_cluster_runs_what_was_asked_for_and_else_todays() -> None:
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


def test_labs_on_one_machine_have_no_address_and_no_name_in_common() -> None:
    labs = [_lab(number) for number in range(8)]
    networks = [(number, IPv4Network(block)) for number, (blocks, _) in enumerate(labs) for block in blocks]
    assert [(a, b) for (m, a), (n, b) in combinations(networks, 2) if m != n and a.overlaps(b)] == []
    names = [name for _, each in labs for name in each]
    assert len(names) == len({*names}) == 8 * (4 + 15 - 1)  # the link and the cgroup are called the same
    assert max(map(len, names)) < 32
    assert "/var/lib/rayspan-lab" in labs[0][1]


@pytest.mark.parametrize("number", ["8", "12", "-1", "one"])
def test_a_lab_that_has_no_addresses_is_refused(number: str) -> None:
    done = _python("from hack.lab.base import paths", number)
    assert done.returncode == 1
    said = f"RAYSPAN_LAB is {number}: a lab is one of 0 to 7, as many as there are blocks of addresses.\n"
    assert done.stderr == said


def _lab(number: int) -> tuple[list[str], set[str]]:
    """Its blocks of addresses, and its names."""
    blocks, names = _python(_ALL, str(number)).stdout.splitlines()
    return blocks.split(), set(names.split())


def _python(program: str, number: str) -> subprocess.CompletedProcess[str]:
    where = {**os.environ, "RAYSPAN_LAB": number}
    return subprocess.run(
        [sys.executable, "-c", program], env=where, cwd=REPO, capture_output=True, text=True, check=False
    )
