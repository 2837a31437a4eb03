"""Finds what cannot work in the manager's queues with an AdmissionCheck of ours.

It uses only what the controller reads anyway. Kueue's `manageJobsWithoutQueueName` is not checked: it harms no gang
(docs/upstream.md, "Pods of a queued job are left alone"). Nor is it checked whether nodes have the label of the flavor
`local`, because the scheduler reports that. A problem of a flavor delays no job.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.queues import NO_FLAVOR, ClusterQueue, LocalQueue, QueueFlavors, ResourceFlavor

_ALWAYS_REQUESTED = ("cpu", "memory")  # each head requests at least one of them


@dataclass(frozen=True, slots=True)
class QueueLayout:
    """The manager's queues."""

    cluster_queues: Iterable[ClusterQueue] = ()
    local_queues: Iterable[LocalQueue] = ()
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    controllers: Mapping[str, str] = field(default_factory=dict)  # AdmissionCheck -> its controllerName


def conflicting_checks(queue: str, controllers: Mapping[str, str]) -> str:
    """Why the checks of one ClusterQueue exclude each other, empty when they do not.

    A job has only one plan. If a check of MultiKueue is beside ours, KubeRay in the manager creates no pods for the job
    (docs/upstream.md, "MultiKueue takes a job away from KubeRay"), so shares would be held for workers that never come.
    """
    our_checks = [name for name, controller in controllers.items() if controller == names.CONTROLLER_NAME]
    multikueue_checks = [
        name for name, controller in controllers.items() if controller == names.MULTIKUEUE_CONTROLLER_NAME
    ]
    if len(our_checks) > 1:
        return f"{queue} lists {' and '.join(our_checks)}; leave one of them there."
    if our_checks and multikueue_checks:
        return (
            f"{queue} lists {our_checks[0]} and {multikueue_checks[0]}, a check of MultiKueue; give each of them a "
            "ClusterQueue of its own."
        )
    return ""


def problems(check: str, queues: QueueLayout) -> list[str]:
    """A sentence for each fault in the layout of the ClusterQueues with the check."""
    return [
        sentence
        for queue in sorted(queues.cluster_queues, key=lambda queue: queue.name)
        if check in queue.checks
        for sentence in _queue_problems(check, queue, queues)
    ]


def _queue_problems(check: str, queue: ClusterQueue, queues: QueueLayout) -> Iterator[str]:
    where = f"ClusterQueue {queue.name}"
    rival = conflicting_checks(where, {name: queues.controllers.get(name, "") for name in queue.checks})
    if rival:
        yield rival
    everywhere, covered = queue.flavors, frozenset(queue.checks[check])
    yield from (
        f"{where}: onFlavors of AdmissionCheck {check} names {name}, which is not one of its flavors; correct the name."
        for name in sorted(covered - everywhere)
    )
    yield from _topology_problems(where, check, covered or everywhere, queues)
    if not covered:
        yield from _missing_on_flavors(where, check, sorted(everywhere), queues)
        return
    for group in queue.groups:
        remote = [flavor for flavor in group.flavors if flavor in covered]
        local = [flavor for flavor in group.flavors if flavor not in covered]
        for name in remote:
            yield from _head_problems(where, name, bool(local), group, queues)
            yield from _indistinct_flavors(where, name, local, queues)
    if any(_flavor(name, queues).node_labels.get(names.POOL_LABEL) for name in covered):
        yield from _local_queue_problems(queue.name, queues)


def _topology_problems(where: str, check: str, flavors: Iterable[str], queues: QueueLayout) -> Iterator[str]:
    """A sentence for each flavor with a topology; remote workers are on none of its nodes.

    Source: docs/upstream.md, "What a check covers".
    """
    for name in sorted(flavors):
        topology = _flavor(name, queues).topology
        if topology:
            yield (
                f"{where}: AdmissionCheck {check} is on ResourceFlavor {name}, whose spec.topologyName is {topology}: "
                "Kueue would use the manager's nodes for remote workers; use a flavor without a topology."
            )


def _missing_on_flavors(where: str, check: str, flavors: list[str], queues: QueueLayout) -> Iterator[str]:
    """A sentence if the flavors have several pools: then the check must name the flavor of remote workers."""
    pools = {name: pool for name in flavors if (pool := _flavor(name, queues).node_labels.get(names.POOL_LABEL))}
    if len(set(pools.values())) > 1:
        yield (
            f"{where}: AdmissionCheck {check} has no onFlavors, but {' and '.join(pools)} differ in "
            f"{names.POOL_LABEL}: every job would be dispatched, local ones too; name the flavor of remote workers in "
            "onFlavors."
        )


def _head_problems(where: str, name: str, elsewhere: bool, group: QueueFlavors, queues: QueueLayout) -> Iterator[str]:
    """A sentence if Kueue may count a head in a remote flavor.

    The head would get the flavor's node labels, and would fit no node of the manager.
    """
    flavor = _flavor(name, queues)
    if elsewhere:
        if flavor.node_labels and not flavor.keeps_out:
            yield (
                f"{where}: ResourceFlavor {name} has spec.nodeLabels but no taint that keeps heads out, so they are "
                "counted there as soon as the other flavors are full, and cannot start; give it spec.nodeTaints and "
                "no spec.tolerations."
            )
    elif flavor.node_labels and set(group.resources).intersection(_ALWAYS_REQUESTED):
        yield (
            f"{where}: ResourceFlavor {name} with spec.nodeLabels is in onFlavors, and no other flavor has "
            f"{' and '.join(group.resources)}: heads get these labels too, and cannot start; add a flavor for them."
        )


def _indistinct_flavors(where: str, remote: str, local: Iterable[str], queues: QueueLayout) -> Iterator[str]:
    """A sentence for each local flavor that no node label distinguishes from the remote flavor.

    Both flavors need the same key, with different values
    (docs/upstream.md, "A selector meets a flavor's own keys only").
    """
    remote_labels = _flavor(remote, queues).node_labels
    for name in local:
        labels = _flavor(name, queues).node_labels
        if name in queues.flavors and not any(labels.get(key, value) != value for key, value in remote_labels.items()):
            key = next(iter(remote_labels), names.POOL_LABEL)
            yield (
                f"{where}: no key of spec.nodeLabels has different values in ResourceFlavors {name} and {remote}, so "
                f"Kueue counts remote workers in {name}; give {key} to both, with a value of its own."
            )


def _local_queue_problems(cluster_queue: str, queues: QueueLayout) -> Iterator[str]:
    for queue in sorted(queues.local_queues, key=lambda queue: queue.key):
        if queue.cluster_queue != cluster_queue:
            continue
        where = f"LocalQueue {queue.name} in {queue.namespace}"
        if queue.pool != names.POOL_REMOTE:
            yield (
                f"{where} has no label {names.POOL_LABEL}={names.POOL_REMOTE}, so workers of its jobs run in the "
                f"manager unless they ask for {names.POOL_LABEL} themselves; add the label."
            )
        elif queue.name == names.DEFAULT_QUEUE:
            yield (
                f"{where}: a job that names no queue gets this one too late for {names.POOL_LABEL}, so its workers "
                "run in the manager; give the LocalQueue another name."
            )


def _flavor(name: str, queues: QueueLayout) -> ResourceFlavor:
    return queues.flavors.get(name, NO_FLAVOR)
