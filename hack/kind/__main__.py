"""`python -m hack.kind demo|down`: three kind clusters with Kueue, KubeRay and Rayspan, and the demo's job; or delete
them.

It needs Linux, Docker, kind and kubectl, and is not tested: there is no Docker where it is developed. A second `demo`
resumes where the first stopped. It ends with the command that runs the tests on these clusters.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.demo import __main__ as demo
from hack.kind import clusters
from hack.kind.clusters import CLUSTERS, MANAGER, Cluster
from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError, step, told
from hack.release.overlays import DEVELOPED
from hack.testbed import install

_PATIENCE = 900.0  # seconds for one command; the longest loads images
_FILES = REPO / "build" / "kind"
_KUEUE = f"https://github.com/kubernetes-sigs/kueue/releases/download/{versions.KUEUE}/manifests.yaml"
_KUBERAY = f"https://github.com/ray-project/kuberay/ray-operator/config/default?ref={versions.KUBERAY}"
_READY = {"kueue-system": "deployment/kueue-controller-manager", "default": "deployment/kuberay-operator"}


def _demo(image: str) -> int:
    """Make what is missing, install, run the job, and say how to go on."""
    _check()
    _FILES.mkdir(parents=True, exist_ok=True)
    there = run(["kind", "get", "clusters"], timeout=_PATIENCE).split()
    for cluster in CLUSTERS:
        if cluster.kind not in there:
            with step(f"kind: cluster {cluster.kind}"):
                text = clusters.configuration(cluster, image)
                run(
                    ["kind", "create", "cluster", "--config=-", "--wait=180s", "--kubeconfig", _FILES / "kind"],
                    input=text,
                    timeout=_PATIENCE,
                )
    addresses = {cluster.name: _address(cluster) for cluster in CLUSTERS}
    for cluster in CLUSTERS:
        _kubeconfig(cluster).write_text(_login(cluster, addresses[cluster.name]))
        _kubeconfig(cluster).chmod(0o600)
    with step("kind: routes between the clusters' pods"):
        for command in (*clusters.routes(addresses), *(clusters.unmasked(str(_kubeconfig(each))) for each in CLUSTERS)):
            run(command, timeout=_PATIENCE)
    with step("kind: the controller's image"):
        run(["docker", "build", "--tag", DEVELOPED, REPO], timeout=_PATIENCE)
        run(["kind", "load", "docker-image", DEVELOPED, "--name", CLUSTERS[0].kind], timeout=_PATIENCE)
    for cluster in CLUSTERS:
        with step(f"kind: Kueue{' and KubeRay' if cluster.name == MANAGER else ''} in {cluster.name}"):
            _addons(cluster)
    manager, workers = _given()
    wrong = demo.run_job(install.on(manager, [f"{name}={file}" for name, file in workers.items()], there=False))
    print("\n".join(["The demo FAILED.", *wrong] if wrong else [_next()]), file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


def _down() -> int:
    """Delete the three clusters."""
    for cluster in CLUSTERS:
        run(["kind", "delete", "cluster", "--name", cluster.kind], timeout=_PATIENCE)
    shutil.rmtree(_FILES, ignore_errors=True)
    return 0


def _check() -> None:
    missing = [program for program in ("docker", "kind", "kubectl") if not shutil.which(program)]
    if missing or sys.platform != "linux":
        raise LabError(
            f"It needs Linux with docker, kind and kubectl; here is {sys.platform}, "
            f"without {', '.join(missing) or 'nothing'}. `make demo` needs none of them."
        )


def _kubeconfig(cluster: Cluster) -> Path:
    return _FILES / f"{cluster.name}.kubeconfig"


def _given() -> tuple[Path, dict[str, Path]]:
    manager, *workers = CLUSTERS
    return _kubeconfig(manager), {cluster.name: _kubeconfig(cluster) for cluster in workers}


def _address(cluster: Cluster) -> str:
    form = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
    return run(["docker", "inspect", "--format", form, cluster.node], timeout=_PATIENCE).strip()


def _login(cluster: Cluster, address: str) -> str:
    text = run(["kind", "get", "kubeconfig", "--internal", "--name", cluster.kind], timeout=_PATIENCE)
    return clusters.login(text, cluster, address)


def _addons(cluster: Cluster) -> None:
    kubectl = ["kubectl", f"--kubeconfig={_kubeconfig(cluster)}"]
    apply = [*kubectl, "apply", "--server-side", "--force-conflicts"]
    if cluster.name == MANAGER:  # first, since Kueue's webhooks reject other pods until it runs
        run([*apply, "-k", _KUBERAY], timeout=_PATIENCE)
    run([*apply, "-f", _KUEUE], timeout=_PATIENCE)
    for namespace, deployment in _READY.items():
        if namespace != "default" or cluster.name == MANAGER:
            run([*kubectl, "-n", namespace, "rollout", "status", deployment, "--timeout=600s"], timeout=_PATIENCE)


def _next() -> str:
    manager, workers = _given()
    logins = " ".join([f"--manager {manager}", *(f"--worker {name}={file}" for name, file in workers.items())])
    return f"""The clusters are up. What to try next:
  kubectl --kubeconfig={manager} get rayjobs,workloads,placements,pods -o wide
  .venv/bin/python -m pytest e2e -m "not byhand and not long" {logins}
They go away with `make kind-down`."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.kind", description=__doc__)
    parser.add_argument("what", choices=("demo", "down"))
    parser.add_argument(
        "--image", default=clusters.NODE_IMAGE, help="of the nodes, of Kubernetes 1.36 (default %(default)s)"
    )
    given = parser.parse_args(argv)
    return told(lambda: _demo(given.image) if given.what == "demo" else _down())


if __name__ == "__main__":
    sys.exit(main())
