"""Can the manager's queues with an AdmissionCheck of ours work as they are laid out: sentences about those that cannot.

Asked of what the controller reads anyway; where a sentence would need another right, there is none. So Kueue's
`manageJobsWithoutQueueName` is not looked at (it harms no gang: docs/upstream.md, "Pods of a queued job are left alone"), nor
whether a node has the label of the flavor `local` (the scheduler says that on the head's pod). It changes no queue, and
what it says of a flavor holds no job up: local jobs pass, and a gang that cannot be served waits where it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.queues import NO_FLAVOR, ClusterQueue, LocalQueue, QueueFlavors, ResourceFlavor

_ALWAYS_REQUESTED = ("cpu", "memory")  # a head always asks for one of these


@dataclass(frozen=True, slots=True)
class QueueLayout:
    """The manager's queues as they stand."""

    cluster_queues: Iterable[ClusterQueue] = ()
    local_queues: Iterable[LocalQueue] = ()
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    controllers: Mapping[str, str] = field(default_factory=dict)  # AdmissionCheck -> its controllerName


def conflicting_checks(queue: str, controllers: Mapping[str, str]) -> str:
    """Say why the checks of one ClusterQueue exclude each other, empty when they do not.

    `controllers` is check -> controllerName of all that it lists. A job has one plan; and MultiKueue keeps KubeRay in the manager
    from making a job's pods at all (docs/upstream.md, "MultiKueue takes a job away from KubeRay"), so its shares would be
    held for workers that never come.
    """
    ours = [name for name, controller in controllers.items() if controller == names.CONTROLLER_NAME]
    theirs = [name for name, controller in controllers.items() if controller == names.MULTIKUEUE_CONTROLLER_NAME]
    if len(ours) > 1:
        return f"{queue} lists {' and '.join(ours)}; leave one of them there."
    if ours and theirs:
        return f"{queue} lists {ours[0]} and {theirs[0]}, a check of MultiKueue; give each of them a ClusterQueue of its own."
    return ""


def problems(check: str, queues: QueueLayout) -> list[str]:
    """Say, for each ClusterQueue with the check, what of its layout cannot work; nothing for one that can."""
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
        f"{where}: onFlavors of AdmissionCheck {check} names {name}, which is no flavor of it; correct the name."
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
    """A topology is of the manager's nodes, and remote workers are on none (docs/upstream.md, "What a check covers")."""
    for name in sorted(flavors):
        topology = _flavor(name, queues).topology
        if topology:
            yield (
                f"{where}: AdmissionCheck {check} is on ResourceFlavor {name}, whose spec.topologyName is {topology}: Kueue "
                "would look for the manager's nodes for remote workers; take a flavor without a topology."
            )


def _missing_on_flavors(where: str, check: str, flavors: list[str], queues: QueueLayout) -> Iterator[str]:
    """The layout with pools, and nothing that says which of them is remote."""
    pools = {name: pool for name in flavors if (pool := _flavor(name, queues).node_labels.get(names.POOL_LABEL))}
    if len(set(pools.values())) > 1:
        yield (
            f"{where}: AdmissionCheck {check} has no onFlavors, but {' and '.join(pools)} differ in {names.POOL_LABEL}: every "
            "job would be dispatched, local ones too; name the flavor of remote workers in onFlavors."
        )


def _head_problems(where: str, name: str, elsewhere: bool, group: QueueFlavors, queues: QueueLayout) -> Iterator[str]:
    """A head that is counted in a remote flavor gets its node labels, and then no node of the manager takes it."""
    flavor = _flavor(name, queues)
    if elsewhere:
        if flavor.node_labels and not flavor.keeps_out:
            yield (
                f"{where}: ResourceFlavor {name} has spec.nodeLabels but no taint that keeps heads out, so they are counted there "
                "as soon as the other flavors are full, and start nowhere; give it spec.nodeTaints and no spec.tolerations."
            )
    elif flavor.node_labels and set(group.resources).intersection(_ALWAYS_REQUESTED):
        yield (
            f"{where}: ResourceFlavor {name} with spec.nodeLabels is in onFlavors, and no other flavor has "
            f"{' and '.join(group.resources)}: heads get these labels too, and start nowhere; add a flavor for them."
        )


def _indistinct_flavors(where: str, remote: str, local: Iterable[str], queues: QueueLayout) -> Iterator[str]:
    """Both flavors need the same key (docs/upstream.md, "A selector meets a flavor's own keys only")."""
    remote_labels = _flavor(remote, queues).node_labels
    for name in local:
        labels = _flavor(name, queues).node_labels
        if name in queues.flavors and not any(labels.get(key, value) != value for key, value in remote_labels.items()):
            key = next(iter(remote_labels), names.POOL_LABEL)
            yield (
                f"{where}: no key of spec.nodeLabels has different values in ResourceFlavors {name} and {remote}, so Kueue counts "
                f"remote workers in {name}; give {key} to both, with a value of its own."
            )


def _local_queue_problems(cluster_queue: str, queues: QueueLayout) -> Iterator[str]:
    for queue in sorted(queues.local_queues, key=lambda queue: queue.key):
        if queue.cluster_queue != cluster_queue:
            continue
        where = f"LocalQueue {queue.name} in {queue.namespace}"
        if queue.pool != names.POOL_REMOTE:
            yield (
                f"{where} has no label {names.POOL_LABEL}={names.POOL_REMOTE}, so workers of its jobs run in the manager unless "
                f"they ask for {names.POOL_LABEL} themselves; add the label."
            )
        elif queue.name == names.DEFAULT_QUEUE:
            yield (
                f"{where}: a job that names no queue gets this one too late for {names.POOL_LABEL}, so its workers run in the "
                "manager; give the LocalQueue another name."
            )


def _flavor(name: str, queues: QueueLayout) -> ResourceFlavor:
    return queues.flavors.get(name, NO_FLAVOR)
