"""Kueue and KubeRay in a kind cluster, by the manifests that they publish."""

import json
from dataclasses import dataclass
from pathlib import Path

from hack.kind.clusters import KindCluster
from hack.kind.engine import ENOUGH_PROCESSORS, PATIENCE
from hack.kind.record import Record
from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.progress import LabError, step
from hack.testbed import clusters

KUEUE = f"https://github.com/kubernetes-sigs/kueue/releases/download/{versions.KUEUE}/manifests.yaml"
KUBERAY = f"https://github.com/ray-project/kuberay/ray-operator/config/default?ref={versions.KUBERAY}"
_WEBHOOK_PATIENCE = 120.0  # seconds; Kueue's pod is ready before the API server reaches its webhooks
_CLUSTER_QUEUE = json.dumps(
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "asks-the-webhook"},
        "spec": {"namespaceSelector": {}},
    }
)
# What the requests of a control plane come down to on two processors: nothing but a demo runs beside it.
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
    if processors < ENOUGH_PROCESSORS:
        _lower_requests(kubeconfig)
    with step(f"kind: Kueue in {cluster.name} is ready"):
        _await_rollouts(cluster, kubeconfig)
        _await_webhook(cluster, kubeconfig)


def _apply(cluster: KindCluster, kubeconfig: Path, record: Record, addon: str, source: tuple[str, str]) -> None:
    if addon in record.addons:
        return
    with step(f"kind: {addon} in {cluster.name}"):
        _kubectl(kubeconfig, "apply", "--server-side", "--force-conflicts", *source)
    record.add_addon(addon)


def _lower_requests(kubeconfig: Path) -> None:
    _kubectl(kubeconfig, "--namespace=kube-system", "scale", "deployment/coredns", "--replicas=1")
    for namespace, workload, processors in _LOWERED:
        _kubectl(kubeconfig, f"--namespace={namespace}", "set", "resources", workload, f"--requests=cpu={processors}")


def _await_rollouts(cluster: KindCluster, kubeconfig: Path) -> None:
    status = ("rollout", "status", "--timeout=600s")
    if cluster.is_manager:
        _kubectl(kubeconfig, "--namespace=default", *status, "deployment/kuberay-operator")
    _kubectl(kubeconfig, "--namespace=kueue-system", *status, "deployment/kueue-controller-manager")


def _await_webhook(cluster: KindCluster, kubeconfig: Path) -> None:
    """A dry run changes nothing, but passes every webhook."""
    last = ""

    def answers() -> bool:
        nonlocal last
        try:
            _kubectl(kubeconfig, "create", "--dry-run=server", "-f", "-", input=_CLUSTER_QUEUE)
        except LabError as failure:
            last = str(failure)
            return False
        return True

    clusters.wait(answers, _WEBHOOK_PATIENCE, f"Kueue's webhook in {cluster.name} answers", lambda: last)


def _kubectl(kubeconfig: Path, *words: str, input: str | None = None) -> None:
    run(["kubectl", f"--kubeconfig={kubeconfig}", *words], input=input, timeout=PATIENCE)
