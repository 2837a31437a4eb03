"""Renders the kustomizations of the checkout as objects, with the images as a release names them.

It renders with kubectl, and changes nothing but the names of images.
"""

import functools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.lab.base.commands import run
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.lab.build import tools

Raw = dict[str, Any]
DEVELOPED = "rayspan/rayspan:dev"
"""The controller's image, as the overlays name it."""

RELAY_DEVELOPED = "rayspan/rayspan-relay:dev"
"""The relay's image, as its component names it."""

_PATIENCE = 60.0  # seconds; a rendering takes less than one


@dataclass(frozen=True)
class Part:
    """A kustomization that is installed by itself, and what it is for."""

    name: str
    folder: str
    says: str


MANAGER = Part(
    "manager", "overlays/manager", "For a manager cluster: CRDs, the controller with its rights, and the gate."
)
MANAGER_WEBHOOK = Part(
    "manager-webhook",
    "overlays/manager-webhook",
    "For a manager cluster with Kubernetes 1.34 or 1.35: the same, with a webhook for the gate (docs/admission.md).",
)
MANAGER_METRICS_TLS = Part(
    "manager-metrics-tls",
    "overlays/manager-metrics-tls",
    "For a manager cluster with Prometheus' operator: the same with the component monitoring, "
    "and metrics over TLS alone (docs/metrics.md).",
)
WORKER = Part("worker", "overlays/worker", "For a worker cluster: what `kubectl rayspan join` makes there.")
WORKER_LOGS = Part(
    "worker-logs",
    "overlays/worker-logs",
    "For a worker cluster: the manager may read logs of workers, for people who may in the manager (docs/logs.md).",
)
WORKER_EXEC = Part(
    "worker-exec",
    "overlays/worker-exec",
    "For a worker cluster: the manager may run commands in workers, for people who may in the manager (docs/logs.md).",
)
MONITORING = Part(
    "monitoring",
    "components/monitoring",
    "Metrics, alerts and a dashboard, for Prometheus with its operator and Grafana (docs/metrics.md).",
)
RELAY = Part(
    "relay",
    "components/relay",
    "Routers at one open port, for worker clusters without a route to the manager, "
    "and the controller's rights for them (docs/networks.md).",
)
COMPONENTS = (
    Part("copies-everywhere", "components/copies-everywhere",
        "Opens every namespace: Secrets and ConfigMaps that worker pods refer to are copied from all of them "
        "(docs/secrets.md)."),
    Part("quota-aggregator", "components/quota-aggregator",
        "The right to change quota of the manager's ClusterQueues."),
    Part("job-labels", "components/job-labels",
        "The right to write the label rayspan.dev/clusters on jobs, and what bounds it (docs/workloads.md)."),
    Part("multikueue", "components/multikueue",
        "The right to read the Secrets of your MultiKueueClusters: put their names for east and west."),
    Part("rayservice", "components/rayservice",
        "What keeps KubeRay 1.6 from undoing what Kueue does to a RayService's RayClusters (docs/serving.md)."),
    Part("rayservice-endpoints", "components/rayservice-endpoints",
        "The right to lead requests of RayServices straight to their workers in worker clusters, "
        "and what bounds it (docs/serving.md)."),
    Part("job-defaults", "components/job-defaults",
        "Adds the lines that Kueue requires to jobs in queues with the label rayspan.dev/job-defaults "
        "(docs/workloads.md)."),
    Part("worker-access", "components/worker-access",
        "A server by which people reach workers with rights in the manager alone: "
        "kubectl rayspan logs, exec, port-forward and cp (docs/logs.md)."),
    Part("admission", "components/admission",
        "Warnings for who applies jobs, WorkerClusters and DispatchPolicies (docs/admission.md)."),
    Part("admission-gate", "components/admission-gate",
        "A webhook for the gate, which needs the component admission: "
        "only where MutatingAdmissionPolicies are not served (docs/admission.md)."),
    MONITORING,
    RELAY,
    Part("shared-flavor", "components/shared-flavor", "The manager's queue `ray` with one flavor for everything."),
    Part("local-remote", "components/local-remote",
        "The manager's queue `ray` with one flavor for what runs there and one for what does not."),
)  # fmt: skip


def objects(part: Part, image: str, relay_image: str = "") -> list[Raw]:
    """The objects of a part, in the order in which they are applied, with `image` for the controller's.

    Without its own name, the relay's image has the tag of the controller's.
    """
    text = _rendered(part).replace(RELAY_DEVELOPED, relay_image or _relay_image(image)).replace(DEVELOPED, image)
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]


def relay_repository(repository: str) -> str:
    """Where the relay's image is, beside the controller's."""
    return f"{repository}-relay"


def _relay_image(image: str) -> str:
    """A digest is of one image alone."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    return f"{relay_repository(repository)}:{tag}"


@functools.cache
def _rendered(part: Part) -> str:
    return run([_kubectl(), "kustomize", REPO / "kustomize" / part.folder], timeout=_PATIENCE)


def _kubectl() -> Path:
    """The lab's kubectl if it is built, else the machine's, else the lab's, which is then built."""
    try:
        return tools.path("kubectl")
    except LabError:
        found = shutil.which("kubectl")
    if not found:
        tools.build(["kubectl"])
    return Path(found) if found else tools.path("kubectl")
