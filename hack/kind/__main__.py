"""`python -m hack.kind demo|down`: three kind clusters with Kueue, KubeRay and Rayspan, and the demo's job; or delete
them.

It needs docker, git, kind and kubectl. A second `demo` goes on where the first stopped. It ends with the command that
runs the tests on these clusters.
"""

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from adapter import names
from hack.demo import __main__ as demo
from hack.kind import addons, clusters, engine
from hack.kind.addons import Manifests
from hack.kind.clusters import CLUSTERS, KindCluster
from hack.kind.programs import await_kubectl, run_docker, run_kind
from hack.kind.record import Record
from hack.lab.base import sidebyside, versions
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError, step, told
from hack.release.overlays import DEVELOPED
from hack.testbed import clusters as testbed
from hack.testbed import install
from hack.testbed.clusters import Clusters
from hack.testbed.reader import NotThere

_FILES = REPO / "build" / "kind"
_SIDE_BY_SIDE = 2  # clusters that start together; most of it is waiting
_MANAGER, *_WORKERS = CLUSTERS


def _demo(node_image: str, manifests: Manifests, *, build: bool) -> int:
    """Make what is missing, install, run the job, and say how to go on."""
    info = engine.check()
    for hint in engine.hints(info):
        print(f"hint: {hint}", file=sys.stderr)
    _FILES.mkdir(parents=True, exist_ok=True)
    records = _ensure_clusters(node_image)
    if build:
        with step("docker: build the controller's image"):
            engine.build_controller()
    engine.pull_images()
    fleet = testbed.of(_kubeconfig(_MANAGER), {each.name: _kubeconfig(each) for each in _WORKERS})
    engine.load_images(_images(), records, _FILES, restart=lambda: install.restart_controller(fleet.manager))
    _side_by_side(
        [
            partial(addons.install, each, _kubeconfig(each), manifests, records[each.name], info["NCPU"])
            for each in CLUSTERS
        ]
    )
    _accept_workers(fleet)
    workers = {name: cluster.kubeconfig for name, cluster in fleet.workers.items()}
    install.install(fleet.manager.kubeconfig, workers, servers={each.name: each.server for each in _WORKERS})
    faults = demo.run_job(fleet)
    print("\n".join(["The demo FAILED.", *faults] if faults else [_next()]), file=sys.stderr if faults else sys.stdout)
    return 1 if faults else 0


def _down() -> int:
    """Delete the three clusters."""
    failures = []
    for cluster in CLUSTERS:
        try:
            run_kind("delete", "cluster", "--name", cluster.kind, "--kubeconfig", _kubeconfig(cluster))
        except LabError as failure:
            failures.append(str(failure))
    shutil.rmtree(_FILES, ignore_errors=True)
    if failures:
        raise LabError("\n".join(failures))
    return 0


def _ensure_clusters(node_image: str) -> dict[str, Record]:
    """Start the clusters, create those that are missing, and lead them to each other; returns their records."""
    existing = run_kind("get", "clusters").split()
    for cluster in CLUSTERS:
        if cluster.kind in existing:
            run_docker("start", cluster.node)
    records = {each.name: Record.read(each.node) for each in CLUSTERS if each.kind in existing}
    _side_by_side([partial(_create, each, node_image) for each in CLUSTERS if records.get(each.name) is None])
    for cluster in CLUSTERS:
        _write_kubeconfig(cluster)
        await_kubectl(_kubeconfig(cluster), "get", "--raw=/readyz", goal=f"the API server of {cluster.name} answers")
    _route()
    return {each.name: Record.read(each.node) or Record(each.node) for each in CLUSTERS}


def _create(cluster: KindCluster, node_image: str) -> None:
    """Create a cluster in place of one whose creation was interrupted."""
    with step(f"kind: create cluster {cluster.kind}"):
        run_kind("delete", "cluster", "--name", cluster.kind, "--kubeconfig", _kubeconfig(cluster))
        text = clusters.configuration(cluster, node_image)
        words = ("--config=-", "--wait=300s", "--kubeconfig", _kubeconfig(cluster))
        run_kind("create", "cluster", *words, input=text, long=True)
        Record(cluster.node).write()


def _accept_workers(fleet: Clusters) -> None:
    """Let the manager take a worker cluster that was created again for the earlier one of its name."""
    with suppress(NotThere):  # Rayspan is not installed yet
        for name, cluster in fleet.workers.items():
            earlier_uid = (fleet.manager.get("workerclusters", name).get("status") or {}).get("clusterUID")
            uid = cluster.get("namespaces", "kube-system")["metadata"]["uid"]
            if earlier_uid not in (None, uid):
                accept = f"{names.ACCEPT_CLUSTER_ANNOTATION}={uid}"
                fleet.manager.kubectl("annotate", "workerclusters", name, "--overwrite", accept)


def _write_kubeconfig(cluster: KindCluster) -> None:
    """kind's own, by a port of this machine: a node's address is known in Docker's network alone."""
    text = run_kind("get", "kubeconfig", "--name", cluster.kind)
    file = _kubeconfig(cluster)
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(text)


def _route() -> None:
    """Lead the nodes to each other's pods. A node forgets its routes when its container starts again."""
    with step("kind: routes between the clusters' pods"):
        for words in clusters.routes({cluster.name: engine.address(cluster) for cluster in CLUSTERS}):
            run_docker(*words)


def _images() -> dict[str, Sequence[KindCluster]]:
    """Which clusters need which images."""
    return {
        engine.KUEUE_IMAGE: CLUSTERS,
        engine.KUBERAY_IMAGE: [_MANAGER],
        DEVELOPED: [_MANAGER],
        engine.RAY_IMAGE: CLUSTERS,
    }


def _side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """Do these things, some at once."""
    for first in range(0, len(works), _SIDE_BY_SIDE):
        sidebyside.run(works[first : first + _SIDE_BY_SIDE])


def _kubeconfig(cluster: KindCluster) -> Path:
    return _FILES / f"{cluster.name}.kubeconfig"


def _next() -> str:
    manager = shlex.quote(f"--kubeconfig={_kubeconfig(_MANAGER)}")
    workers = [f"--worker={each.name}={_kubeconfig(each)}" for each in _WORKERS]
    logins = shlex.join([f"--manager={_kubeconfig(_MANAGER)}", *workers])
    return f"""The clusters are up. What to try next:
  kubectl {manager} get rayjobs,workloads,placements,pods -o wide
  .venv/bin/python -m pytest e2e -m "not byhand and not long" {logins}
They go away with `make kind-down`."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.kind", description=__doc__)
    parser.add_argument("what", choices=("demo", "down"))
    parser.add_argument(
        "--image", default=versions.KIND_NODE, help="of the nodes, of Kubernetes 1.36 (default %(default)s)"
    )
    parser.add_argument("--kueue", default=addons.KUEUE, metavar="FILE", help="Kueue's manifests (default: published)")
    parser.add_argument(
        "--kuberay", default=addons.KUBERAY, metavar="FOLDER", help="KubeRay's kustomization (default: published)"
    )
    parser.add_argument("--no-build", action="store_true", help=f"take Docker's image {DEVELOPED} as it is")
    options = parser.parse_args(argv)
    manifests = Manifests(options.kueue, options.kuberay)
    if options.what == "down":
        return told(_down)
    return told(lambda: _demo(options.image, manifests, build=not options.no_build))


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
