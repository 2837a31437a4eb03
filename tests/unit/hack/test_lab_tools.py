"""What of the lab's tools is built together, under which names do they appear, and what becomes of a build that was ended?"""

from pathlib import Path

import pytest

from hack.lab.base import versions
from hack.lab.base.progress import LabError
from hack.lab.build import catalog, golang, tools


class Go:
    """Stands for the go command: writes a program for each package that it is asked to build, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.broken = False

    def __call__(self, source: str, *words: str, log: Path | None = None, temporary: Path | None = None) -> str:
        self.calls.append((source, words))
        output = Path(words[words.index("-o") + 1])
        output.mkdir()
        if self.broken:
            raise LabError("It was interrupted.")
        for package in words[words.index("-o") + 2 :]:
            (output / tools.made_as(package)).write_text(package)
        return ""


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Go:
    go = Go()
    monkeypatch.setattr(tools, "CACHE", tmp_path)
    monkeypatch.setattr(tools, "_go", go)
    monkeypatch.setattr(golang, "minor", lambda: "1.26")
    return go


@pytest.mark.parametrize(
    ("package", "name"),
    [
        pytest.param("go.etcd.io/etcd/server/v3", "server", id="a major version is no name"),
        pytest.param("sigs.k8s.io/kueue/cmd/kueue", "kueue", id="the last part"),
        pytest.param("github.com/containerd/containerd/v2/cmd/ctr", "ctr", id="below a major version"),
    ],
)
def test_a_program_is_found_under_the_name_that_go_gives_it(package: str, name: str) -> None:
    assert tools.made_as(package) == name


def test_what_one_file_pins_is_one_call_of_go(go: Go) -> None:
    tools.build(["containerd", "kubernetes", "kueue", "coredns", "etcd", "kuberay"])
    assert [source for source, _ in go.calls] == ["containerd", "shared", "kuberay"]
    assert sum("cmd/kueue" in word for word in go.calls[1][1]) == 2  # how it is linked, and that it is built


def test_each_program_appears_under_its_own_name(go: Go) -> None:
    tools.build(["kubernetes", "etcd"])
    assert tools.path("etcd").read_text() == "go.etcd.io/etcd/server/v3"
    assert tools.path("kubelet").samefile(tools.path("kube-apiserver"))
    assert not tools.path("kubelet").is_symlink()  # a process is told by the file that it runs


def test_only_what_was_asked_for_is_built_and_that_once(go: Go) -> None:
    tools.build(["etcd"])
    tools.build(["etcd"])
    assert len(go.calls) == 1
    with pytest.raises(LabError, match=r"kwok .* is not built yet"):
        tools.path("kwok")


def test_what_no_cluster_needs_is_built_for_who_asks_for_it_alone(go: Go) -> None:
    assert catalog.HELM not in catalog.ALL  # what `make lab` builds
    tools.build(["helm"])
    assert [source for source, _ in go.calls] == ["helm"]
    assert tools.path("helm").read_text() == "helm.sh/helm/v4/cmd/helm"


def test_what_is_left_out_of_a_program_is_told_to_go_for_it_alone(go: Go) -> None:
    assert catalog.PROMETHEUS not in catalog.ALL
    tools.build(["promtool", "helm"])
    assert tools.path("promtool").read_text() == "github.com/prometheus/prometheus/cmd/promtool"
    tagged = {source: [word for word in words if word.startswith("-tags=")] for source, words in go.calls}
    assert tagged == {"helm": [], "prometheus": ["-tags=remove_all_sd,enable_dns_sd"]}


def test_another_version_is_built_for_who_asks_for_it_alone(go: Go) -> None:
    assert not [tool for tool in catalog.OTHERS if tool in catalog.ALL]  # what `make lab` and `make demo` build
    tools.build(["kubernetes@v1.35.4", "kueue@v0.18.3"])
    assert [source for source, _ in go.calls] == ["kubernetes-1.35", "kueue-0.18"]
    assert "gitVersion=v1.35.4" in " ".join(go.calls[0][1]) and "GitVersion=v0.18.3" in " ".join(go.calls[1][1])
    assert tools.path("kubelet@v1.35.4").read_text() == "rayspan.dev/hack/tools/kubernetes-1.35/kubernetes"
    with pytest.raises(LabError, match=r"kubelet v1\.36\.3 is not built yet"):
        tools.path(f"kubelet@{versions.KUBERNETES}")  # today's, by its version
    with pytest.raises(
        LabError, match=r"builds no kubelet v1\.30\.0; it knows v1\.36\.3, v1\.34\.4, v1\.35\.4, v1\.37\.2"
    ):
        tools.path("kubelet@v1.30.0")
    with pytest.raises(LabError, match=r"run `python -m hack.lab.build.tools kubernetes@v1\.34\.4`"):
        tools.path("kubelet@v1.34.4")


def test_programs_that_are_linked_in_one_call_are_stamped_each_with_its_own_version(go: Go) -> None:
    tools.build(["kubernetes", "kueue"])
    flags = [word for word in go.calls[0][1] if word.startswith("-ldflags=")]
    stamped = [("version.gitVersion" in flag, "version.GitVersion" in flag) for flag in flags]
    assert stamped == [(True, False), (True, False), (False, True)]  # the servers, kubectl, Kueue


def test_nothing_appears_of_a_build_that_fails_and_nothing_stays(go: Go, tmp_path: Path) -> None:
    go.broken = True
    with pytest.raises(LabError):
        tools.build(["kubernetes", "etcd"])
    assert list((tmp_path / "tools").iterdir()) == []


def test_what_a_killed_build_left_is_removed_by_the_next(go: Go, tmp_path: Path) -> None:
    left = tmp_path / "tools" / ".left" / "temporary"
    left.mkdir(parents=True)
    (left / "object").touch()
    tools.build(["etcd"])
    assert [place.name for place in (tmp_path / "tools").iterdir()] == [tools.home(catalog.named("etcd")).name]


def test_a_long_build_says_beforehand_how_long_it_takes() -> None:
    names = [catalog.named(name) for name in ("kubernetes", "kueue")]
    minutes = sum(tool.minutes for tool in names)
    assert tools.title(names).endswith(f" (once; about {minutes:.0f} min on 2 cores)")
    assert tools.title([catalog.PAUSE]) == f"build pause {catalog.PAUSE.version}"
