"""The lab's tools: which are built together, their file names, and the leftovers of an ended build."""

from pathlib import Path

import pytest

from hack.lab.base import versions
from hack.lab.base.progress import LabError
from hack.lab.build import catalog, golang, tools


class Go:
    """Stands in for the go command: writes a program for each package, and records the calls."""

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
        pytest.param("go.etcd.io/etcd/server/v3", "server", id="the part before a major version"),
        pytest.param("sigs.k8s.io/kueue/cmd/kueue", "kueue", id="the last part of the path"),
        pytest.param("github.com/containerd/containerd/v2/cmd/ctr", "ctr", id="a part below a major version"),
    ],
)
def test_a_program_has_the_name_that_go_gives_it(package: str, name: str) -> None:
    assert tools.made_as(package) == name


def test_the_tools_of_one_module_file_are_one_call_of_go(go: Go) -> None:
    tools.build(["containerd", "kubernetes", "kueue", "coredns", "etcd", "kuberay"])
    assert [source for source, _ in go.calls] == ["containerd", "shared", "kuberay"]
    assert sum("cmd/kueue" in word for word in go.calls[1][1]) == 2  # the linker flags and the build command


def test_each_program_appears_under_its_own_name(go: Go) -> None:
    tools.build(["kubernetes", "etcd"])
    assert tools.path("etcd").read_text() == "go.etcd.io/etcd/server/v3"
    assert tools.path("kubelet").samefile(tools.path("kube-apiserver"))
    assert not tools.path("kubelet").is_symlink()  # a process is identified by its file


def test_only_requested_tools_are_built_and_only_once(go: Go) -> None:
    tools.build(["etcd"])
    tools.build(["etcd"])
    assert len(go.calls) == 1
    with pytest.raises(LabError, match=r"kwok .* is not built yet"):
        tools.path("kwok")


def test_tools_that_no_cluster_needs_are_built_on_request_alone(go: Go) -> None:
    assert catalog.HELM not in catalog.ALL  # the tools of `make lab`
    tools.build(["helm"])
    assert [source for source, _ in go.calls] == ["helm"]
    assert tools.path("helm").read_text() == "helm.sh/helm/v4/cmd/helm"


def test_build_tags_apply_to_their_program_alone(go: Go) -> None:
    assert catalog.PROMETHEUS not in catalog.ALL
    tools.build(["promtool", "helm"])
    assert tools.path("promtool").read_text() == "github.com/prometheus/prometheus/cmd/promtool"
    tagged = {source: [word for word in words if word.startswith("-tags=")] for source, words in go.calls}
    assert tagged == {"helm": [], "prometheus": ["-tags=remove_all_sd,enable_dns_sd"]}


def test_another_version_is_built_on_request_alone(go: Go) -> None:
    assert not [tool for tool in catalog.OTHERS if tool in catalog.ALL]  # the tools of `make lab` and `make demo`
    tools.build(["kubernetes@v1.35.4", "kueue@v0.18.3"])
    assert [source for source, _ in go.calls] == ["kubernetes-1.35", "kueue-0.18"]
    assert "gitVersion=v1.35.4" in " ".join(go.calls[0][1]) and "GitVersion=v0.18.3" in " ".join(go.calls[1][1])
    assert tools.path("kubelet@v1.35.4").read_text() == "rayspan.dev/hack/tools/kubernetes-1.35/kubernetes"
    with pytest.raises(LabError, match=r"kubelet v1\.36\.3 is not built yet"):
        tools.path(f"kubelet@{versions.KUBERNETES}")  # today's version
    with pytest.raises(
        LabError, match=r"builds no kubelet v1\.30\.0; it knows v1\.36\.3, v1\.34\.4, v1\.35\.4, v1\.37\.2"
    ):
        tools.path("kubelet@v1.30.0")
    with pytest.raises(LabError, match=r"run `python -m hack.lab.build.tools kubernetes@v1\.34\.4`"):
        tools.path("kubelet@v1.34.4")


def test_programs_of_one_call_have_their_own_versions(go: Go) -> None:
    tools.build(["kubernetes", "kueue"])
    flags = [word for word in go.calls[0][1] if word.startswith("-ldflags=")]
    stamped = [("version.gitVersion" in flag, "version.GitVersion" in flag) for flag in flags]
    assert stamped == [(True, False), (True, False), (False, True)]  # the servers, kubectl, Kueue


def test_a_failed_build_leaves_nothing(go: Go, tmp_path: Path) -> None:
    go.broken = True
    with pytest.raises(LabError):
        tools.build(["kubernetes", "etcd"])
    assert list((tmp_path / "tools").iterdir()) == []


def test_the_next_build_removes_leftovers_of_a_killed_one(go: Go, tmp_path: Path) -> None:
    left = tmp_path / "tools" / ".left" / "temporary"
    left.mkdir(parents=True)
    (left / "object").touch()
    tools.build(["etcd"])
    assert [place.name for place in (tmp_path / "tools").iterdir()] == [tools.home(catalog.named("etcd")).name]


def test_a_long_build_announces_its_duration() -> None:
    names = [catalog.named(name) for name in ("kubernetes", "kueue")]
    minutes = sum(tool.minutes for tool in names)
    assert tools.title(names).endswith(f" (once; about {minutes:.0f} min on 2 cores)")
    assert tools.title([catalog.PAUSE]) == f"build pause {catalog.PAUSE.version}"
