"""Creates the remote pod of a manager pod, with the mirror of the head that it needs.

A remote pod requests no more than its share holds. dispatch.py decides whether a pod gets one, and rewrite/rewriter.py
writes its spec.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from adapter import names
from adapter.actions import Action, CreatePod, MirrorHead, RequeueAfter, emit_event
from adapter.admission import pod_validation
from adapter.objects.placement import Placement, Share, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import with_topology_request
from adapter.objects.unstructured import Raw, key_of
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job
from adapter.relay import relay_pod
from adapter.relay.frp_config import RelayAddress
from adapter.relay.relay_network import RelayNetwork, has_server
from adapter.relay.relayed_worker import RelayedWorker
from adapter.rewrite import copied_objects, ray_node_env, rewriter, service_mirror, stripping
from adapter.rewrite import group_workload as holding
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.worker.worker_facts import Worker

# How often a worker is reconciled whose share Kueue is about to evict for unready pods (gang/readiness_timeout.py). It
# waits until Kueue has seen the share without them, or has evicted it. A share of one worker has no others to protect.
_READINESS_RETRY = timedelta(seconds=2)


def create_when_ready(worker: Worker, pod: Raw, placement: Placement, slot: Slot, now: datetime) -> list[Action]:
    """Create the remote pod in the slot, with the head's mirror; nothing while something is to be waited for."""
    cluster = slot.cluster
    # Wait while an orphan of this name or a remote pod elsewhere ends, the share is not admitted, its round is not
    # placed, the job is being deleted, or the head has no address.
    share = next((share for share in placement.active_shares if placement.share_key(share) == slot.share), None)
    reservation = worker.clusters.reservations.get(slot.share)
    if (
        cluster in worker.remote_pods
        or worker.own_remote_pods(pod)
        or worker.owner.deleted
        or share is None
        or not placement.is_placed(share)
        or reservation is None
        or not reservation.admitted
        or not worker.head.address.ip
    ):
        return []
    cluster_time = worker.clusters.clocks.time_in(cluster, now)
    if share.workers > 1 and reservation.is_pods_ready_due(cluster_time):
        return [RequeueAfter(_READINESS_RETRY)]
    return _create_actions(worker, pod, placement, reservation, share, slot)


def _create_actions(
    worker: Worker, pod: Raw, placement: Placement, reservation: Reservation, share: Share, slot: Slot
) -> list[Action]:
    body, target = _remote_pod_body(worker, pod, reservation, share, slot), worker.clusters.targets[share.cluster]
    invalid = _validation_problem(pod, body, target.pods)
    relay = _relayed_worker(worker, pod, share.cluster)
    if relay and worker.owner.relay_key_problem:
        text = f"A worker for {share.cluster} is not created: {worker.owner.relay_key_problem}."
        return emit_event(worker.owner.job, names.EventReason.RELAY_KEY_CHANGED, text, warning=True)
    if relay:
        body = _as_relayed_node(body, relay, target.network.image or worker.owner.relay_image)
    wanted = rewriter.referenced_objects(pod, worker.owner.pull_secrets)
    if (
        problem := invalid
        or (_relay_problem(worker.head.pod, target.network.image or worker.owner.relay_image) if relay else "")
        or _excess_reason(body, reservation, slot)
        or copied_objects.over_limit_reason(wanted, {})
    ):
        text = f"A worker for {share.cluster} is not created: {problem}."
        return emit_event(worker.owner.job, names.EventReason.WORKER_FAILING, text, warning=True)
    creation = CreatePod(share.cluster, worker.owner.job, placement, slot.share, pod, body, wanted, relay)
    events = _report_user_overrides(worker.owner.job, pod, target)
    mirrors = [] if relay else head_mirror_writes(worker, pod, placement, slot.share)
    return [*events, *mirrors, creation]


def head_mirror_writes(worker: Worker, pod: Raw, placement: Placement, share_key: ShareKey) -> list[Action]:
    """The head's mirror is created before the first worker, and then kept up to date."""
    cluster, reservation = share_key.cluster, worker.clusters.reservations.get(share_key)
    mirror, service = worker.head.mirrors.get(cluster), worker.head.address.service_key
    if mirror is None or service is None or reservation is None or reservation.deleting:
        return []
    target = replace(worker.clusters.targets[cluster], share=reservation.name)
    bodies = service_mirror.mirror_writes(service, worker.head.pod, mirror, target, reservation.anchor_uid)
    return [MirrorHead(cluster, worker.owner.job, placement, share_key, pod, body) for body in bodies]


def _remote_pod_body(worker: Worker, pod: Raw, reservation: Reservation, share: Share, slot: Slot) -> Raw:
    target, role = worker.clusters.targets[share.cluster], slot.role
    labels = {**reservation.ray_labels.get(role, {}), **target.labels}
    pods = replace(
        _with_reserved_selector(target.pods, reservation, role), extended_resources=reservation.resource_names
    )
    return rewriter.remote_pod(
        # Kueue schedules no pod without the request of its share. The RayCluster's template may be edited meanwhile.
        with_topology_request(pod, reservation.topology_requests.get(role)),
        head=_head_address(worker, pod),
        target=replace(target, share=reservation.name, round=reservation.round, labels=labels, pods=pods),
        role=role,
        slot=str(slot),
        anchor_uid=reservation.anchor_uid,
        pod_group=reservation.pod_group,
        pull_secrets=worker.owner.pull_secrets,
    )


def _relayed_worker(worker: Worker, pod: Raw, cluster: str) -> RelayedWorker | None:
    """What a worker of a gang with a relayed network needs; a flat cluster's workers dial the head itself."""
    if not worker.owner.relay:
        return None
    network, head_ip = worker.clusters.targets[cluster].network, worker.head.address.ip
    address = RelayAddress(network.host, network.port) if network.is_relayed else _head_server(head_ip)
    relay_network = RelayNetwork(worker.owner.relay, key_of(pod)[0])
    return RelayedWorker(relay_network, cluster, address, head_ip, worker.owner.relay_key)


def _relay_problem(head: Raw | None, image: str) -> str:
    """Why workers cannot join the head through the relay; its admission policy makes it a node of the network."""
    if not image:
        return (
            "the job's head was started for the relay, and no cluster of its policy has mode Relay any more, whose "
            "image its workers need; set spec.network of one again, or start the job again"
        )
    if has_server(head or {}):
        return ""
    return (
        f"the head pod {key_of(head or {})[1]} has no container {names.RELAY_SERVER}, so no worker reaches it through "
        "the relay; install the component relay in the manager cluster, and start the job again"
    )


def _head_server(head_ip: str) -> RelayAddress:
    return RelayAddress(head_ip, names.RELAY_SERVER_PORT)


def _as_relayed_node(body: Raw, relay: RelayedWorker, image: str) -> dict[str, Any]:
    """The remote pod as a node of its network; one that dials the head itself is replaced when the head moves."""
    metadata = body["metadata"]
    labels = {**metadata["labels"], names.RELAY_LABEL: relay.network.identity}
    own = {**metadata["annotations"], names.RELAY_ADDRESS_ANNOTATION: str(relay.address)}
    moves = {names.HEAD_IP_ANNOTATION: relay.head_ip} if relay.address == _head_server(relay.head_ip) else {}
    node = relay_pod.worker_pod(body, relay.network, relay.cluster, image)
    return {**node, "metadata": {**metadata, "labels": labels, "annotations": {**own, **moves}}}


def _head_address(worker: Worker, pod: Raw) -> HeadAddress:
    network = RelayNetwork(worker.owner.relay, key_of(pod)[0])
    return replace(worker.head.address, relay_name=network.head_node if worker.owner.relay else "")


def _with_reserved_selector(mapping: PodMapping, reservation: Reservation, role: str) -> PodMapping:
    """Use the node selector of the share, by which Kueue chose a flavor.

    Kueue would finish the whole share for one pod that contradicts its flavor's node labels (kueue:pkg/podset, Merge;
    jobframework, FailedToStart).
    """
    template = reservation.templates.get(role)
    return (
        replace(mapping, node_selector=(template.get("spec") or {}).get("nodeSelector") or {}) if template else mapping
    )


def _validation_problem(pod: Raw, body: Raw, mapping: PodMapping) -> str:
    manager_spec = stripping.without_token(pod.get("spec") or {})
    return pod_validation.remote_pod_problem(body["spec"], manager_spec, mapping, key_of(pod)[0])


def _excess_reason(body: Raw, reservation: Reservation, slot: Slot) -> str:
    """Kueue checks the pods of a group by role and number alone."""
    template = reservation.templates.get(slot.role)
    excess = holding.excess_requests(body["spec"], template) if template else ""
    return excess and (
        f"it requests {excess}, for which no quota is held; put everything that adds to the template's requests, such "
        "as sidecars of KubeRay's operator or a resize, into the template"
    )


def _report_user_overrides(job: Job | None, pod: Raw, target: Target) -> list[Action]:
    """Report the user's zone and cluster settings, which are kept."""
    containers: Sequence[Raw] = (pod.get("spec") or {}).get("containers") or ({},)
    text = ray_node_env.user_override_message(containers[0].get("env") or (), target)
    return emit_event(job, names.EventReason.ZONE_SETTINGS_KEPT, text) if text else []
