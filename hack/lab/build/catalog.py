"""Which programs does the lab build, from which Go module, and how? It is a list: it builds nothing and knows no paths.

Most of what Kubernetes, Kueue, CoreDNS, etcd and kwok are made of is the same, so one go.mod pins it for all of them, and it is
compiled once. Their own sources are stock; where two of them ask for different versions of something else, all get the newer one,
which is then not what each was published with. KubeRay stays apart, for it does not compile with the controller-runtime that Kueue
needs, and so do containerd and Helm, which share little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hack.lab.base import versions
from hack.lab.base.progress import LabError


@dataclass(frozen=True)
class Tool:
    """Programs with one version, from one module directory under hack/lab/modules."""

    name: str
    source: str
    """The directory under hack/lab/modules whose go.mod pins it. What has the same one is built together."""
    module: str
    version: str
    programs: Mapping[str, str]
    """Program → Go package with its main. Several programs of one package are one binary that looks at its name."""
    ldflags: tuple[str, ...] = field(default=())
    minutes: float = 0.0
    """What it adds to the first build, downloads included, on two cores. Told beforehand, and nothing else."""


_SHARED = "shared"
OURS = f"rayspan.dev/hack/tools/{_SHARED}"
"""Where the mains are that we write: Go packages below hack/lab/modules/shared."""

_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_CONTAINERD = "github.com/containerd/containerd/v2"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_KUEUE_STAMP = f"-X=sigs.k8s.io/kueue/pkg/version.GitVersion={versions.KUEUE}"


def _kubernetes_version() -> tuple[str, ...]:
    """Without these the API server reports v0.0.0-master, and clients refuse it."""
    major, minor, _ = versions.KUBERNETES.removeprefix("v").split(".")
    stamps = {"gitVersion": versions.KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"-X=k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


TOOLS: tuple[Tool, ...] = (
    Tool(
        "containerd",
        "containerd",
        _CONTAINERD,
        versions.CONTAINERD,
        {program: f"{_CONTAINERD}/cmd/{program}" for program in ("containerd", "containerd-shim-runc-v2", "ctr")},
        (f"-X={_CONTAINERD}/version.Version={versions.CONTAINERD}",),
        minutes=1,
    ),
    Tool(
        "kubernetes",
        _SHARED,
        "k8s.io/kubernetes",
        versions.KUBERNETES,
        {**dict.fromkeys(_SERVERS, f"{OURS}/kubernetes"), "kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        _kubernetes_version(),
        minutes=5.5,
    ),
    Tool(
        "kueue",
        _SHARED,
        "sigs.k8s.io/kueue",
        versions.KUEUE,
        {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        (_KUEUE_STAMP,),
        minutes=1,
    ),
    Tool(
        "coredns",
        _SHARED,
        "github.com/coredns/coredns",
        versions.COREDNS,
        {"coredns": f"{OURS}/coredns"},
        minutes=0.25,
    ),
    Tool(
        "etcd",
        _SHARED,
        "go.etcd.io/etcd/server/v3",
        versions.ETCD,
        {"etcd": "go.etcd.io/etcd/server/v3"},
        minutes=0.25,
    ),
    Tool("kuberay", "kuberay", _KUBERAY, versions.KUBERAY, {"kuberay": _KUBERAY}, minutes=2),
    Tool("kwok", _SHARED, "sigs.k8s.io/kwok", versions.KWOK, {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, minutes=0.5),
)

PAUSE = Tool("pause", _SHARED, "k8s.io/kubernetes", versions.KUBERNETES, {"pause": "build/pause/linux/pause.c"})
"""The one program in C, at its place in the module: every pod's first container."""

ALL: tuple[Tool, ...] = (PAUSE, *TOOLS)

HELM = Tool("helm", "helm", "helm.sh/helm/v4", versions.HELM, {"helm": "helm.sh/helm/v4/cmd/helm"}, minutes=3)
"""No cluster needs it: it is built when the test of the chart asks for it."""

BUILDABLE: tuple[Tool, ...] = (*ALL, HELM)

VOLCANO = Tool("volcano", "volcano", "volcano.sh/volcano", versions.VOLCANO, {})
"""Not built: tests apply a CRD that its authors publish."""


def named(name: str) -> Tool:
    """The tool called `name`, or the one that has a program called so."""
    for tool in (*BUILDABLE, VOLCANO):
        if name == tool.name or name in tool.programs:
            return tool
    known = ", ".join(program for tool in BUILDABLE for program in tool.programs)
    raise LabError(f"The lab builds no program called {name}; it knows {known}.")
