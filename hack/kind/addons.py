"""Kueue and KubeRay in a kind cluster, by the manifests that they publish."""

import json
from dataclasses import dataclass
from pathlib import Path

from hack.kind.clusters import KindCluster
from hack.kind.engine import ENOUGH_PROCESSORS
from hack.kind.programs import await_kubectl, run_kubectl
from hack.kind.record import Record
from hack.lab.base import versions
from hack.lab.base.progress import step

KUEUE = f"https://github.com/kubernetes-sigs/kueue/releases/download/{versions.KUEUE}/manifests.yaml"
# kustomize gives git 27 s unless told, and git fetches the whole repository.
KUBERAY = f"https://github.com/ray-project/kuberay/ray-operator/config/default?ref={versions.KUBERAY}&timeout=600s"
_CLUSTER_QUEUE = json.dumps(
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "asks-the-webhook"},
        "spec": {"namespaceSelector": {}},
    }
)
# Kueue's manifest says that its image is always pulled; the node has it.
_NO_PULL = json.dumps(
    [{"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"}]
)
# With two processors: nothing but a demo runs beside these.
_LOWERED = (
    ("kube-system", "deployment/coredns", "10m"),
    ("kube-system", "daemonset/kindnet", "10m"),
    ("kueue-system", "deployment/kueue-controller-manager", "50m"),
)


@dataclass(frozen=True)
class Manifests:
    """Where they are: Kueue's is a file or a URL, KubeRay's a folder or a URL with a kustomization."""

    kueue: str = KUEUE
    kuberay: str = KUBERAY


def install(cluster: KindCluster, kubeconfig: Path, manifests: Manifests, record: Record, processors: int) -> None:
    """Install what the cluster lacks, and wait until Kueue's webhooks answer."""
    if cluster.is_manager:  # before Kueue, whose webhooks reject other pods until it runs
        _apply(cluster, kubeconfig, record, "KubeRay", ("-k", manifests.kuberay))
    _apply(cluster, kubeconfig, record, "Kueue", ("-f", manifests.kueue))
    run_kubectl(kubeconfig, "--namespace=kueue-system", "patch", "deployment/kueue-controller-manager", "--type=json",
                f"--patch={_NO_PULL}")  # fmt: skip
    if processors < ENOUGH_PROCESSORS:
        _lower_requests(kubeconfig)
    with step(f"kind: wait for Kueue in {cluster.name}"):
        _await_rollouts(cluster, kubeconfig)
        _await_webhook(cluster, kubeconfig)


def _apply(cluster: KindCluster, kubeconfig: Path, record: Record, addon: str, source: tuple[str, str]) -> None:
    if record.addons.get(addon) == source[1]:
        return
    with step(f"kind: {addon} in {cluster.name}"):
        run_kubectl(kubeconfig, "apply", "--server-side", "--force-conflicts", *source, long=True)
    record.add_addon(addon, source[1])


def _lower_requests(kubeconfig: Path) -> None:
    run_kubectl(kubeconfig, "--namespace=kube-system", "scale", "deployment/coredns", "--replicas=1")
    for namespace, workload, processors in _LOWERED:
        run_kubectl(
            kubeconfig, f"--namespace={namespace}", "set", "resources", workload, f"--requests=cpu={processors}"
        )


def _await_rollouts(cluster: KindCluster, kubeconfig: Path) -> None:
    status = ("rollout", "status", "--timeout=600s")
    if cluster.is_manager:
        run_kubectl(kubeconfig, "--namespace=default", *status, "deployment/kuberay-operator", long=True)
    run_kubectl(kubeconfig, "--namespace=kueue-system", *status, "deployment/kueue-controller-manager", long=True)


def _await_webhook(cluster: KindCluster, kubeconfig: Path) -> None:
    """Kueue's pod is ready before the API server reaches its webhooks. A dry run passes all of them."""
    words = ("create", "--dry-run=server", "-f", "-")
    await_kubectl(kubeconfig, *words, goal=f"Kueue's webhook in {cluster.name} answers", input=_CLUSTER_QUEUE)
