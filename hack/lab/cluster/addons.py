"""Installs what the clusters run: CoreDNS, stock Kueue everywhere, and stock KubeRay in the manager.

Kueue and KubeRay come from the manifests that their own modules publish. Changed are only the image (none is pulled
here) and the period of the readiness probe (a lab starts often). Any further change would test something that no user
installs.
"""

import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hack.lab.base import lock, versions
from hack.lab.base.lab import Cluster
from hack.lab.base.paths import CACHE
from hack.lab.base.progress import LabError
from hack.lab.build import tools
from hack.lab.cluster import api, control_plane, kubectl
from hack.lab.images import images

_PATIENCE = 180.0  # seconds; 15 to 30 on an idle machine


@dataclass(frozen=True)
class Addon:
    """One Deployment with all that belongs to it."""

    name: str
    version: str
    namespace: str
    deployment: str
    config: str = ""
    """Where its module keeps its kustomizations; the one to install is `default`. Empty: a file of ours."""

    @property
    def key(self) -> str:
        """The name of its program and its image."""
        return versions.called(self.name, self.version)

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.deployment}"


COREDNS = Addon("coredns", versions.COREDNS, "kube-system", "coredns")
KUBERAY = Addon("kuberay", versions.KUBERAY, "default", "kuberay-operator", "config")
KUEUE = Addon("kueue", versions.KUEUE, "kueue-system", "kueue-controller-manager", "config")

_PROBE = "/spec/template/spec/containers/0/readinessProbe"
_PROBED: Mapping[str, int] = {"initialDelaySeconds": 1, "periodSeconds": 1}
_A_CLUSTER_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "lab-asks-the-webhook"},
    "spec": {"namespaceSelector": {}},
}


def of(cluster: Cluster) -> tuple[Addon, ...]:
    """In the order of installation: Kueue last, for its webhooks refuse other people's pods until it runs."""
    kueue, kuberay = replace(KUEUE, version=cluster.runs.kueue), replace(KUBERAY, version=cluster.runs.kuberay)
    return (COREDNS, kuberay, kueue) if cluster.is_manager else (COREDNS, kueue)


def ensure(cluster: Cluster) -> None:
    """Apply what was not applied since the cluster began."""
    for addon in of(cluster):
        manifest = rendered(addon)
        done = cluster.directory / "applied" / manifest.name
        if not done.exists():
            kubectl.run(cluster, "apply", "--server-side", "--force-conflicts", "--validate=false", "-f", manifest)
            api.wait(f"{addon.name} in {cluster.name}", functools.partial(_begun, cluster, addon), seconds=_PATIENCE,
                     advice=_advice(cluster, addon))  # fmt: skip
            done.parent.mkdir(exist_ok=True)
            done.touch()


def await_ready(cluster: Cluster) -> None:
    for addon in of(cluster):
        what = f"{addon.name} in {cluster.name}"
        api.wait(what, functools.partial(ready, cluster, addon), seconds=_PATIENCE, advice=_advice(cluster, addon))
    api.wait(f"Kueue's webhook in {cluster.name}", lambda: _webhook_answers(cluster), seconds=_PATIENCE,
             advice=_advice(cluster, KUEUE))  # fmt: skip


def ready(cluster: Cluster, addon: Addon) -> bool:
    control_plane.check(cluster)
    return bool(api.get(cluster, addon.path)["status"].get("availableReplicas"))


def rendered(addon: Addon) -> Path:
    """The addon's manifest, ready to apply. Rendered once per version and image, then kept in the cache."""
    change = _change(addon)
    key = hashlib.sha256((change + _own_text(addon)).encode()).hexdigest()[:12]
    goal = CACHE / "manifests" / f"{addon.name}-{addon.version}-{key}.yaml"
    if not goal.exists():
        with lock.held(CACHE / "manifests.lock", "waiting for another rendering of the manifests"):
            text = _kustomized(addon, change)
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.with_suffix(".new").write_text(text, encoding="utf-8")
            goal.with_suffix(".new").rename(goal)
    return goal


def _kustomized(addon: Addon, change: str) -> str:
    with tempfile.TemporaryDirectory(prefix="rayspan-") as place:
        config = Path(place) / "config"
        if addon.config:
            shutil.copytree(tools.module_dir(addon.key) / addon.config, config, copy_function=shutil.copyfile)
        else:
            (config / "default").mkdir(parents=True)
            (config / "default" / "all.yaml").write_text(_own_text(addon), encoding="utf-8")
            (config / "default" / "kustomization.yaml").write_text("resources: [all.yaml]\n", encoding="utf-8")
        ours = Path(place) / "lab"
        ours.mkdir()
        (ours / "kustomization.yaml").write_text(change, encoding="utf-8")
        return kubectl.kustomize(ours)


def _change(addon: Addon) -> str:
    container = "/spec/template/spec/containers/0"
    edits: list[dict[str, object]] = [
        {"op": "replace", "path": f"{container}/image", "value": images.reference(addon.key)},
        {"op": "add", "path": f"{container}/imagePullPolicy", "value": "IfNotPresent"},
    ]
    edits += [{"op": "add", "path": f"{_PROBE}/{key}", "value": value} for key, value in _PROBED.items()]
    patch = {"target": {"kind": "Deployment"}, "patch": json.dumps(edits)}
    return json.dumps({"resources": ["../config/default"], "patches": [patch]}, indent=2)


def _own_text(addon: Addon) -> str:
    return "" if addon.config else (Path(__file__).parent / f"{addon.name}.yaml").read_text(encoding="utf-8")


def _begun(cluster: Cluster, addon: Addon) -> bool:
    control_plane.check(cluster)
    return bool(api.get(cluster, addon.path).get("status", {}).get("replicas"))


def _webhook_answers(cluster: Cluster) -> bool:
    """A dry run changes nothing, but passes every webhook."""
    try:
        api.call(cluster, "POST", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues?dryRun=All", _A_CLUSTER_QUEUE)
    except api.Refused as refusal:
        if refusal.status in (400, 404, 422):
            raise LabError(f"Kueue in {cluster.name} refuses a plain ClusterQueue: {refusal}.") from refusal
        raise
    return True


def _advice(cluster: Cluster, addon: Addon) -> str:
    return f"see `python -m hack.lab kubectl {cluster.name} -n {addon.namespace} describe pods`"
