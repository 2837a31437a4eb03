"""Installs Rayspan on a set of clusters: by its overlays with kubectl, and by what `kubectl rayspan join` does.

A second call changes nothing and takes seconds. It needs Kueue on every cluster and KubeRay on the manager, and
installs neither. It never shows the token that it carries from a worker cluster to the manager.
"""

import argparse
import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapter import membership, names
from adapter.cli.membership import clients, join
from hack.lab.base import lab as definition
from hack.lab.base import lock
from hack.lab.base.paths import REPO, STATE
from hack.lab.base.progress import LabError, step
from hack.lab.cluster import containerd
from hack.lab.images import images
from hack.testbed import clusters
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.reader import Raw

CONTROLLER = "rayspan-controller"
PODS = "app.kubernetes.io/name=rayspan,app.kubernetes.io/component=controller"

_OVERLAYS = REPO / "kustomize" / "overlays"
_TELLS_IMAGE = """
from hack.lab.images import images
image, archive = images.prepare("rayspan")
print(image.image_id(), archive)
"""
_FIRST = "customresourcedefinition.apiextensions.k8s.io"
_TELLS = {  # the condition of each kind that an applied object works
    _FIRST: "Established",
    "deployment.apps": "Available",
    "admissioncheck.kueue.x-k8s.io": names.ACTIVE,
    "clusterqueue.kueue.x-k8s.io": names.ACTIVE,
    "workercluster.rayspan.dev": names.CONNECTED,
}
_PATIENCE = 120.0  # seconds; ten on an idle machine, most of them for the controller's Python


def install(
    manager: Path,
    workers: Mapping[str, Path],
    *,
    worker_overlay: str = "demo-worker",
    manager_overlay: str = "demo",
    fleet_overlay: str | None = "demo-fleet",
    image: str | None = None,
    overlays: Path = _OVERLAYS,
    servers: Mapping[str, str] | None = None,
) -> None:
    """Install on these clusters, and wait until it works.

    `overlays`: those of another checkout, whose `image` it is. `image` is the id that the controller must run: the
    content under the reference rayspan/rayspan:dev changes, and a controller that runs another id is restarted. Without
    a fleet overlay the queues cannot be Active and are not waited for. `servers`: the worker clusters' addresses for
    the manager, where it does not use this machine's.
    """
    fleet = clusters.of(manager, workers)
    with step("rayspan: apply the overlays"), ThreadPoolExecutor() as pool:
        done = [pool.submit(_apply, each, overlays / worker_overlay) for each in fleet.workers.values()]
        applied = _apply(fleet.manager, overlays / manager_overlay)
        queues = {each: one.result() for each, one in zip(fleet.workers.values(), done, strict=True)}
        _await(fleet.manager, [each for each in applied if each.startswith(_FIRST)])
        for (
            name,
            cluster,
        ) in fleet.workers.items():  # one by one: the client library keeps its files for the whole process
            asyncio.run(_hand_over(fleet.manager, name, cluster, (servers or {}).get(name, "")))
        if image:
            _renew(fleet.manager, image)
    with step("rayspan: wait until it is ready"):
        if fleet_overlay is None:
            _await(fleet.manager, [each for each in applied if each.startswith("deployment.")])
            return
        _await(fleet.manager, [*applied, *_apply(fleet.manager, overlays / fleet_overlay)])
        for cluster, objects in queues.items():
            _await(cluster, objects)


def on(manager: Path | None, workers: Iterable[str], *, there: bool) -> Clusters:
    """The clusters that a test run names by kubeconfigs, workers as NAME=KUBECONFIG; the lab's if it names none.

    Rayspan is installed on them unless `there`.
    """
    if manager is None:
        return clusters.of_lab() if there else on_lab()
    named = {name: Path(path) for name, _, path in (text.partition("=") for text in workers)}
    if not there:
        install(manager, named)
    return clusters.of(manager, named)


def on_lab(*, manager_overlay: str = "demo", checkout: Path = REPO) -> Clusters:
    """Install on the lab, with the controller of a checkout as it is now, by default this one: for a developer's
    changes.
    """
    lab, fleet = definition.load(), clusters.of_lab()
    image, archive = _image() if checkout == REPO else _image_of(checkout)
    with lock.held(STATE / "lock", "waiting for another command on the lab"):
        containerd.bring(lab.manager, "rayspan", archive)
    workers = {name: cluster.kubeconfig for name, cluster in fleet.workers.items()}
    overlays = checkout / _OVERLAYS.relative_to(REPO)
    install(fleet.manager.kubeconfig, workers, manager_overlay=manager_overlay, image=image, overlays=overlays)
    return fleet


def _image() -> tuple[str, Path]:
    """The id and the archive of our image."""
    image, archive = images.prepare("rayspan")
    return image.image_id(), archive


def _image_of(checkout: Path) -> tuple[str, Path]:
    """The same of another checkout, by its own program."""
    with step("image of the other checkout"):
        command = [sys.executable, "-c", _TELLS_IMAGE]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{checkout} cannot make its image: {done.stderr.strip()[-2000:]}")
    number, archive = done.stdout.splitlines()[-1].split(maxsplit=1)
    return number, Path(archive)


def leader(manager: Cluster) -> str:
    """The pod of the controller that leads, or led last; empty if none does."""
    lease = manager.get("lease", names.LEASE, names.SYSTEM_NAMESPACE)
    return str((lease.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def controller_kubeconfig(manager: Cluster) -> str:
    """A kubeconfig of the manager with the rights of the controller's ServiceAccount and no others."""
    token = manager.kubectl("-n", names.SYSTEM_NAMESPACE, "create", "token", CONTROLLER).strip()
    config = json.loads(manager.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    return json.dumps(config)


def worker_kubeconfig(manager: Cluster, name: str) -> str:
    """The kubeconfig that the controller itself uses for a worker cluster."""
    found = manager.get("secret", name, names.SYSTEM_NAMESPACE)
    return base64.b64decode(found["data"][names.KUBECONFIG_KEY]).decode()


def _apply(cluster: Cluster, overlay: Path) -> list[str]:
    """The names of what was applied, as kind.group/name."""
    return cluster.kubectl("apply", "-k", overlay, "-o", "name").split()


async def _hand_over(manager: Cluster, name: str, cluster: Cluster, server: str) -> None:
    """Give the manager its access to a worker cluster, which need not become a WorkerCluster; a lasting token is
    kept."""
    logins = {"kubeconfig": str(manager.kubeconfig), "worker_kubeconfig": str(cluster.kubeconfig)}
    given = argparse.Namespace(name=name, context="", worker_context="", **logins)
    try:
        async with clients.open_clients(given) as both:
            there = await join.address_for_manager(both, server)
            await join.create_login(both, there, ["default"], membership.TOKEN_LIFETIME, lambda _: None)
    except (clients.ClusterError, membership.MembershipError) as trouble:
        raise LabError(f"{name} cannot be handed over to the manager: {trouble}") from trouble


def hand_over(manager: Cluster, name: str, kubeconfig: str) -> None:
    """Set the kubeconfig by which the manager reaches a worker cluster, valid or not."""
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    if manager.get("secret", name, names.SYSTEM_NAMESPACE).get("data") == data:
        return
    metadata = {"name": name, "namespace": names.SYSTEM_NAMESPACE}
    # Applied by the server, so that no annotation repeats the token.
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    how = ("--server-side", "--force-conflicts", "--field-manager=rayspan-install", "-f", "-")
    manager.kubectl("apply", *how, input=json.dumps(secret))


def _renew(manager: Cluster, image: str) -> None:
    """Restart the controller if a pod of it runs another image than this one."""
    if running(manager) - {image}:
        restart_controller(manager)


def restart_controller(manager: Cluster) -> None:
    """Restart the controller if it is installed."""
    if manager.get("deployments", CONTROLLER, names.SYSTEM_NAMESPACE):
        manager.kubectl("-n", names.SYSTEM_NAMESPACE, "rollout", "restart", f"deployment/{CONTROLLER}")


def running(manager: Cluster) -> set[str]:
    """The ids of the images that the controller's pods run, without those that end."""
    pods = manager.items("pods", names.SYSTEM_NAMESPACE, PODS)
    there = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return {
        status["imageID"]
        for pod in there
        for status in pod["status"].get("containerStatuses") or ()
        if status.get("imageID")
    }


def _await(cluster: Cluster, applied: Iterable[str]) -> None:
    for each in applied:
        kind, _, name = each.partition("/")
        if kind in _TELLS:
            _await_one(cluster, kind, name)


def _await_one(cluster: Cluster, kind: str, name: str) -> None:
    def look() -> Raw:
        return cluster.get(kind, name, names.SYSTEM_NAMESPACE)

    what = f"{kind.partition('.')[0]} {name} is {_TELLS[kind]}"
    cluster.wait(lambda: _works(look(), kind), _PATIENCE, what, lambda: _why(cluster, look(), kind))


def _works(found: Raw, kind: str) -> bool:
    """Whether an object works, in the state in which it was last applied."""
    status = found.get("status") or {}
    if kind == "deployment.apps":  # its condition may still speak of the pod that is being replaced
        counts = {status.get(f"{which}eplicas") for which in ("r", "updatedR", "availableR")}
        return status.get("observedGeneration") == found["metadata"]["generation"] and counts == {
            found["spec"]["replicas"]
        }
    return bool(clusters.condition(found, _TELLS[kind]).get("status") == "True")


def _why(cluster: Cluster, found: Raw, kind: str) -> str:
    said = clusters.condition(found, _TELLS[kind]).get("message") or "nothing"
    logs = (
        f"kubectl --kubeconfig={cluster.kubeconfig} -n {names.SYSTEM_NAMESPACE} logs deployment/{CONTROLLER} --all-pods"
    )
    return f"Its condition says: {said.rstrip('.')}. See `{logs}`, or describe the pods there."


def main(argv: Sequence[str]) -> int:
    """Put the checkout as it is now onto the lab; returns the exit code."""
    argparse.ArgumentParser(prog="python -m hack.testbed.install", description=__doc__).parse_args(argv)
    on_lab()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as failure:
        sys.exit(str(failure))
