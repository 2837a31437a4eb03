"""`python -m hack.kind demo|down`: three kind clusters with Kueue, KubeRay and Rayspan, and the demo's job; or delete
them.

It needs docker, kind and kubectl. A second `demo` goes on where the first stopped. It ends with the command that runs
the tests on these clusters.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hack.demo import __main__ as demo
from hack.kind import addons, clusters, engine
from hack.kind.addons import Manifests
from hack.kind.clusters import CLUSTERS, KindCluster
from hack.kind.engine import PATIENCE
from hack.kind.record import Record
from hack.lab.base import sidebyside, versions
from hack.lab.base.commands import run
from hack.lab.base.paths import REPO
from hack.lab.base.progress import step, told
from hack.release.overlays import DEVELOPED
from hack.testbed import clusters as testbed
from hack.testbed import install

_FILES = REPO / "build" / "kind"
_SIDE_BY_SIDE = 2  # clusters that start together; most of it is waiting
_MANAGER, *_WORKERS = CLUSTERS


def _demo(node_image: str, manifests: Manifests, *, build: bool) -> int:
    """Make what is missing, install, run the job, and say how to go on."""
    processors = engine.check()
    _FILES.mkdir(parents=True, exist_ok=True)
    existing = run(["kind", "get", "clusters"], timeout=PATIENCE).split()
    _side_by_side([partial(_create, each, node_image) for each in CLUSTERS if each.kind not in existing])
    _write_kubeconfigs()
    _route()
    records = {cluster.name: Record.read(_record(cluster)) for cluster in CLUSTERS}
    if build:
        with step("docker: build the controller's image"):
            engine.build_controller()
    engine.pull_images()
    replaced = engine.load_images(_images(), records, _FILES)
    _side_by_side(
        [
            partial(addons.install, each, _kubeconfig(each), manifests, records[each.name], processors)
            for each in CLUSTERS
        ]
    )
    return _run_job(restart=DEVELOPED in replaced)


def _run_job(*, restart: bool) -> int:
    manager, workers = _kubeconfig(_MANAGER), {each.name: _kubeconfig(each) for each in _WORKERS}
    fleet = testbed.of(manager, workers)
    if restart:
        install.restart_controller(fleet.manager)
    install.install(manager, workers, servers={each.name: each.server for each in _WORKERS})
    wrong = demo.run_job(fleet)
    print("\n".join(["The demo FAILED.", *wrong] if wrong else [_next()]), file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


def _down() -> int:
    """Delete the three clusters."""
    for cluster in CLUSTERS:
        run(["kind", "delete", "cluster", "--name", cluster.kind], timeout=PATIENCE)
    shutil.rmtree(_FILES, ignore_errors=True)
    return 0


def _create(cluster: KindCluster, node_image: str) -> None:
    _record(cluster).unlink(missing_ok=True)
    with step(f"kind: create cluster {cluster.kind}"):
        run(
            ["kind", "create", "cluster", "--config=-", "--wait=300s", "--kubeconfig", _kubeconfig(cluster)],
            input=clusters.configuration(cluster, node_image),
            timeout=PATIENCE,
        )


def _write_kubeconfigs() -> None:
    """kind's own, by a port of this machine: a node's address is known in Docker's network alone."""
    for cluster in CLUSTERS:
        text = run(["kind", "get", "kubeconfig", "--name", cluster.kind], timeout=PATIENCE)
        file = _kubeconfig(cluster)
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text(text)


def _route() -> None:
    """Lead the nodes to each other's pods. A node forgets its routes when its container starts again."""
    with step("kind: routes between the clusters' pods"):
        for command in clusters.routes({cluster.name: engine.address(cluster) for cluster in CLUSTERS}):
            run(command, timeout=PATIENCE)


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


def _record(cluster: KindCluster) -> Path:
    return _FILES / f"{cluster.name}.json"


def _next() -> str:
    manager = _kubeconfig(_MANAGER)
    logins = " ".join([f"--manager {manager}", *(f"--worker {each.name}={_kubeconfig(each)}" for each in _WORKERS)])
    return f"""The clusters are up. What to try next:
  kubectl --kubeconfig={manager} get rayjobs,workloads,placements,pods -o wide
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
    given = parser.parse_args(argv)
    manifests = Manifests(given.kueue, given.kuberay)
    if given.what == "down":
        return told(_down)
    return told(lambda: _demo(given.image, manifests, build=not given.no_build))


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
