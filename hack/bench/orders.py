"""What is there to do for a gang whose pods are to be made, as a script without any knowledge can do it?

For each pod its own body and that of its copy, made by the product's own rewriter: the same bytes as the controller's. And the
kubeconfigs with the controller's own rights, so that API servers treat both alike, and audit logs count both alike.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adapter import names
from adapter.objects import specs
from adapter.objects.placement import Placement
from adapter.objects.placement import placement as read_placement
from adapter.objects.raw import Raw, annotation, key_of, label
from adapter.objects.reservation import reservation as read_reservation
from adapter.rewrite import rewriter
from adapter.rewrite.headaddress import HeadAddress
from adapter.rewrite.target import Target
from hack.testbed.clusters import Clusters
from hack.testbed.stage import QUEUE, Stage

HOME = "home"  # what the manager's kubeconfig is called
USER = "user"  # and the one of whoever makes the pods, as KubeRay does otherwise
WORK = "work.json"


def write(stage: Stage, job: str, pods: Sequence[Raw], folder: Path) -> None:
    """Write kubeconfigs and work into a folder that only we can read."""
    (folder / USER).write_text(stage.manager.kubeconfig.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / HOME).write_text(_manager(stage.fleet), encoding="utf-8")
    for name in stage.clusters:
        (folder / name).write_text(_worker(stage.fleet, name), encoding="utf-8")
    place = read_placement(stage.placement(job))
    work = {"namespace": stage.name, "placement": place.name, "orders": list(_orders(stage, pods, place))}
    (folder / WORK).write_text(json.dumps(work), encoding="utf-8")


def _orders(stage: Stage, wanted: Sequence[Raw], place: Placement) -> Iterator[dict[str, Any]]:
    """One for each pod, which go to the plan's slots in the order of their names; a copy lacks the uid of its pod."""
    pods = iter(sorted(wanted, key=key_of))
    (head,) = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}")
    for share in place.shares:
        standing = stage.fleet.workers[share.cluster].get("workloads", place.name_of(share), stage.name)
        target = _target(stage, share.cluster, standing, place)
        anchor = read_reservation(share.cluster, standing).anchor_uid
        for group in share.groups:
            for index, pod in zip(range(group.count), pods, strict=False):
                body = rewriter.remote_pod(
                    pod, head=HeadAddress.of(pod, head["status"]["podIP"]), target=target, role=group.role, total=share.workers,
                    slot=f"{share.cluster}/{place.round_of(share)}/{group.role}/{index}", anchor_uid=anchor,
                )  # fmt: skip
                yield {"cluster": share.cluster, "pod": pod, "body": body}


def _target(stage: Stage, cluster: str, standing: Raw, place: Placement) -> Target:
    return Target.of(
        cluster,
        specs.worker_cluster(stage.manager.get("workercluster", cluster)),
        queue=QUEUE,
        manager=label(standing, names.MANAGER_LABEL),
        workload=annotation(standing, names.WORKLOAD_ANNOTATION),
        workload_uid=label(standing, names.WORKLOAD_UID_LABEL),
        placement=place.name,
        round_=place.round,
    )


def _manager(fleet: Clusters) -> str:
    account = ("-n", names.SYSTEM_NAMESPACE, "create", "token", "rayspan-controller")
    config = json.loads(fleet.manager.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": fleet.manager.kubectl(*account).strip()}
    return json.dumps(config)


def _worker(fleet: Clusters, name: str) -> str:
    """The kubeconfig that the controller itself uses."""
    spec = specs.worker_cluster(fleet.manager.get("workercluster", name))
    secret = spec.source.kube_config.secret_ref.name if spec.source.kube_config else name
    found = fleet.manager.get("secret", secret, names.SYSTEM_NAMESPACE)
    return base64.b64decode(found["data"][names.KUBECONFIG_KEY]).decode()
