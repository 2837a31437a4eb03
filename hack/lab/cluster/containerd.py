"""Runs a cluster's containers, and imports images into it: one containerd per cluster, and no registry.

Imported images stay in the cluster's directory over `down` and `up`: unpacking Ray takes longer than all the rest.
Containers do not stay. It never talks to a containerd that the lab did not start.
"""

import json
from pathlib import Path

from hack.lab.base.commands import run
from hack.lab.base.lab import Cluster
from hack.lab.build import tools
from hack.lab.cluster import api, isolation, processes
from hack.lab.images import images

NAME = "containerd"
SOCKET = "/run/containerd/containerd.sock"  # in the cluster's own /run
_PATIENCE = 30.0  # seconds; it takes about one
_IMPORT_PATIENCE = 300.0  # seconds; Ray takes up to ten on an idle machine
_CONFIG = """
version = 3
root = "{root}"
state = "/run/containerd"

[grpc]
  address = "{socket}"

[plugins.'io.containerd.internal.v1.opt']
  path = "{opt}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true # it would load a profile into the machine's kernel
  restrict_oom_score_adj = true # root in a container or a small VM may lack the right to lower it

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
"""


def ensure(cluster: Cluster) -> None:
    home = cluster.directory
    cni = home / "cni"
    cni.mkdir(parents=True, exist_ok=True)
    (cni / "lab.conflist").write_text(json.dumps(_network(cluster), indent=2), encoding="utf-8")
    text = _CONFIG.format(
        root=home / "containerd", socket=SOCKET, opt=home / "opt", cni=cni, pause=images.reference("pause")
    )
    (home / "containerd.toml").write_text(text, encoding="utf-8")
    argv = [str(tools.path(NAME)), "--config", str(home / "containerd.toml"), "--log-level", "info"]
    processes.ensure(cluster, NAME, argv, inside=isolation.node(cluster))


def await_ready(cluster: Cluster) -> None:
    log = processes.log(cluster, NAME)
    api.wait(f"containerd of {cluster.name}", lambda: _answers(cluster), seconds=_PATIENCE, advice=f"see {log}")


def bring(cluster: Cluster, image: str, archive: Path) -> None:
    """Import the archive (images.py names it by its content), unless this very one was imported before."""
    if _imported(cluster).get(image) != archive.name:
        _ctr(cluster, "images", "import", "--local", archive)
        _ctr(
            cluster, "content", "prune", "references"
        )  # its layers are unpacked: keeping them too would double the space
        _remember(cluster, {**_imported(cluster), image: archive.name})


def forget_containers(cluster: Cluster) -> None:
    """Drop the records of containers whose processes have ended, before kubelet meets them."""
    for container in _ctr(cluster, "containers", "list", "--quiet").split():
        _ctr(cluster, "containers", "delete", container)


def _network(cluster: Cluster) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": cluster.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],  # it ends at the node; without one, Ray takes 127.0.0.1 for its address
        },
    }
    return {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge]}


def _answers(cluster: Cluster) -> bool:
    processes.check(cluster, NAME)
    return "Server:" in _ctr(cluster, "version", check=False)


def _ctr(cluster: Cluster, *words: str | Path, check: bool = True) -> str:
    program = [*isolation.node(cluster), tools.path("ctr"), "--address", SOCKET, "--namespace", "k8s.io", *words]
    return run(program, timeout=_IMPORT_PATIENCE, check=check)


def _imported(cluster: Cluster) -> dict[str, str]:
    try:
        said: dict[str, str] = json.loads(_ledger(cluster).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return said


def _remember(cluster: Cluster, ledger: dict[str, str]) -> None:
    fresh = _ledger(cluster).with_suffix(".new")
    fresh.write_text(json.dumps(ledger, indent=2), encoding="utf-8")
    fresh.rename(_ledger(cluster))


def _ledger(cluster: Cluster) -> Path:
    """Stored beside the images, so that both are deleted together."""
    return cluster.directory / "containerd" / "lab-images.json"
