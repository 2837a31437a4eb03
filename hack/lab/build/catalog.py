"""Which programs does the lab build, from which Go module, and how? It is a list: it builds nothing and knows no paths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hack.lab.base import versions
from hack.lab.base.progress import LabError


@dataclass(frozen=True)
class Tool:
    """Programs that are built together, from one module directory under hack/lab/modules."""

    name: str
    source: str
    """The directory under hack/lab/modules whose go.mod pins it."""
    module: str
    version: str
    packages: Mapping[str, str]
    """Program name → Go package below the module ("" for the module itself)."""
    ldflags: tuple[str, ...] = field(default=())


def _kubernetes_version() -> tuple[str, ...]:
    """Without these the API server reports v0.0.0-master, and clients refuse it."""
    major, minor, _ = versions.KUBERNETES.removeprefix("v").split(".")
    stamps = {"gitVersion": versions.KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"-X=k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


def _kubernetes(name: str, programs: Iterable[str]) -> Tool:
    packages = {program: f"cmd/{program}" for program in programs}
    return Tool(name, "kubernetes", "k8s.io/kubernetes", versions.KUBERNETES, packages, _kubernetes_version())


_CONTAINERD = "github.com/containerd/containerd/v2"
_KUEUE_STAMP = f"-X=sigs.k8s.io/kueue/pkg/version.GitVersion={versions.KUEUE}"

TOOLS: tuple[Tool, ...] = (  # cheap and needed first, first; kwok, which only fake nodes need, last
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", versions.ETCD, {"etcd": ""}),
    Tool(
        "containerd",
        "containerd",
        _CONTAINERD,
        versions.CONTAINERD,
        {program: f"cmd/{program}" for program in ("containerd", "containerd-shim-runc-v2", "ctr")},
        (f"-X={_CONTAINERD}/version.Version={versions.CONTAINERD}",),
    ),
    _kubernetes("kubernetes", ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")),
    _kubernetes("kubernetes-node", ("kubelet", "kube-proxy")),
    Tool("coredns", "coredns", "github.com/coredns/coredns", versions.COREDNS, {"coredns": ""}),
    Tool("kuberay", "kuberay", "github.com/ray-project/kuberay/ray-operator", versions.KUBERAY, {"kuberay": ""}),
    Tool("kueue", "kueue", "sigs.k8s.io/kueue", versions.KUEUE, {"kueue": "cmd/kueue"}, (_KUEUE_STAMP,)),
    Tool("kwok", "kwok", "sigs.k8s.io/kwok", versions.KWOK, {"kwok": "cmd/kwok"}),
)

PAUSE = Tool("pause", "kubernetes", "k8s.io/kubernetes", versions.KUBERNETES, {"pause": "build/pause/linux/pause.c"})
"""The one program in C: every pod's first container."""

ALL: tuple[Tool, ...] = (PAUSE, *TOOLS)

VOLCANO = Tool("volcano", "volcano", "volcano.sh/volcano", versions.VOLCANO, {})
"""Not built: tests apply a CRD that its authors publish."""


def named(name: str) -> Tool:
    """The tool called `name`, or the one that has a program called so."""
    for tool in (*ALL, VOLCANO):
        if name == tool.name or name in tool.packages:
            return tool
    known = ", ".join(program for tool in ALL for program in tool.packages)
    raise LabError(f"The lab builds no program called {name}; it knows {known}.")
