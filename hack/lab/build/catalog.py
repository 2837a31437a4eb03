"""Lists the programs that the lab builds: from which Go module, and how. It builds nothing and knows no paths.

Kubernetes, Kueue, CoreDNS, etcd and kwok share most of their dependencies, so one go.mod pins them for all, and they
are compiled once. Their own sources are stock. Where two of them require different versions of a dependency, all get
the newer one, which some were not published with. KubeRay stays apart, since it does not compile with Kueue's
controller-runtime. So do containerd, frp, Helm and Prometheus, which share little.
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
    tags: tuple[str, ...] = field(default=())
    """Go's build tags. What has the same source has the same ones."""
    minutes: float = 0.0
    """What it adds to the first build, downloads included, on two cores. Told beforehand, and nothing else."""

    @property
    def ours(self) -> str:
        """Where the mains are that we write: Go packages below its module directory."""
        return f"{_OURS}/{self.source}"

    @property
    def key(self) -> str:
        """How it is asked for: by its name where it is today's, else such as kueue@v0.18.3."""
        return versions.called(self.name, self.version)


_OURS = "rayspan.dev/hack/tools"
_SHARED = "shared"

_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_CONTAINERD = "github.com/containerd/containerd/v2"
_PROMETHEUS = "github.com/prometheus/prometheus"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"


def _kubernetes_stamps(version: str) -> tuple[str, ...]:
    """Without these the API server reports v0.0.0-master, and clients refuse it."""
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"-X=k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())


def _servers(source: str) -> dict[str, str]:
    """All of them are one main: that of the shared module, to which the directories of other versions link."""
    return dict.fromkeys(_SERVERS, f"{_OURS}/{source}/kubernetes")


def _kueue(source: str, version: str) -> Tool:
    stamp = f"-X=sigs.k8s.io/kueue/pkg/version.GitVersion={version}"
    programs = {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}
    return Tool("kueue", source, "sigs.k8s.io/kueue", version, programs, (stamp,), minutes=1)


def _kuberay(source: str, version: str) -> Tool:
    return Tool("kuberay", source, _KUBERAY, version, {"kuberay": _KUBERAY}, minutes=2)


def _kubernetes(source: str, version: str) -> Tool:
    """Its servers; kubectl is today's in all versions."""
    return Tool(
        "kubernetes", source, "k8s.io/kubernetes", version, _servers(source), _kubernetes_stamps(version), minutes=6
    )


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
        {**_servers(_SHARED), "kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        _kubernetes_stamps(versions.KUBERNETES),
        minutes=5.5,
    ),
    _kueue(_SHARED, versions.KUEUE),
    Tool(
        "coredns",
        _SHARED,
        "github.com/coredns/coredns",
        versions.COREDNS,
        {"coredns": f"{_OURS}/{_SHARED}/coredns"},
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
    _kuberay("kuberay", versions.KUBERAY),
    Tool("kwok", _SHARED, "sigs.k8s.io/kwok", versions.KWOK, {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, minutes=0.5),
)

PAUSE = Tool("pause", _SHARED, "k8s.io/kubernetes", versions.KUBERNETES, {"pause": "build/pause/linux/pause.c"})
"""The one program in C, at its place in the module: every pod's first container."""

ALL: tuple[Tool, ...] = (PAUSE, *TOOLS)

HELM = Tool("helm", "helm", "helm.sh/helm/v4", versions.HELM, {"helm": "helm.sh/helm/v4/cmd/helm"}, minutes=3)
"""No cluster needs it: it is built when the test of the chart asks for it."""

PROMETHEUS = Tool(
    "prometheus",
    "prometheus",
    _PROMETHEUS,
    versions.PROMETHEUS,
    {program: f"{_PROMETHEUS}/cmd/{program}" for program in ("prometheus", "promtool")},
    # Of its twenty-odd service discoveries only the one that docs/metrics.md names: the others are half of what is
    # compiled, clients of clouds.
    tags=("remove_all_sd", "enable_dns_sd"),
    minutes=4,
)
"""No cluster needs it: it is built when the tests of the alerts ask for it.

Its own pages are not in it, for they are no Go.
"""

_FRP = "github.com/fatedier/frp"

FRP = Tool(
    "frp",
    "frp",
    _FRP,
    versions.FRP,
    {program: f"{_FRP}/cmd/{program}" for program in ("frps", "frpc")},
    # Without the tag `frps` of its Makefile, with which the client lacks the plugin http_proxy.
    minutes=1,
)
"""No cluster needs it: it is built when the image of the relay is."""

_MAKERS = {"kubernetes": _kubernetes, "kueue": _kueue, "kuberay": _kuberay}

OTHERS: tuple[Tool, ...] = tuple(
    _MAKERS[name](f"{name}-{version.removeprefix('v').rpartition('.')[0]}", version)
    for name, known in versions.OTHERS.items()
    for version in known
)
"""Other versions, for clusters that are asked to run them.

Each is pinned by a directory that is named after its minor version.
"""

BUILDABLE: tuple[Tool, ...] = (*ALL, HELM, PROMETHEUS, FRP, *OTHERS)

VOLCANO = Tool("volcano", "volcano", "volcano.sh/volcano", versions.VOLCANO, {})
"""Not built: tests apply a CRD that its authors publish."""

CLUSTER_INVENTORY = Tool(
    "cluster-inventory", _SHARED, "sigs.k8s.io/cluster-inventory-api", versions.CLUSTER_INVENTORY, {}
)
"""The same."""

AUTOSCALER = Tool("autoscaler", _SHARED, "k8s.io/autoscaler/cluster-autoscaler/apis", versions.AUTOSCALER, {})
"""The same."""

UNBUILT: tuple[Tool, ...] = (VOLCANO, CLUSTER_INVENTORY, AUTOSCALER)


def named(name: str) -> Tool:
    """The tool called `name`, or the one with a program called so; of today's version, unless a version
    follows an @."""
    wanted, _, version = name.partition("@")
    found = [tool for tool in (*BUILDABLE, *UNBUILT) if wanted == tool.name or wanted in tool.programs]
    for tool in found:
        if version in ("", tool.version):
            return tool
    if found:
        raise LabError(f"The lab builds no {wanted} {version}; it knows {', '.join(tool.version for tool in found)}.")
    known = ", ".join(dict.fromkeys(program for tool in BUILDABLE for program in tool.programs))
    raise LabError(f"The lab builds no program called {wanted}; it knows {known}.")
