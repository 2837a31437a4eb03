"""Can the manager's queues with an AdmissionCheck of ours work as they are laid out: sentences about those that cannot.

Asked of what the controller reads anyway; where a sentence would need another right, there is none. So Kueue's
`manageJobsWithoutQueueName` is not looked at (it harms no gang: docs/upstream.md, "Pods of a queued job are left alone"), nor
whether a node has the label of the flavor `local` (the scheduler says that on the head's pod). It changes no queue, and
what it says of a flavor holds no job up: local jobs pass, and a gang that cannot be served waits where it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.admissioncheck import listed
from adapter.objects.unstructured import Raw, key_of, label

_KEEPS_OUT = ("NoSchedule", "NoExecute")  # the effects that Kueue looks at (flavorassigner.go, checkFlavorForPodSets)
_OF_EVERY_POD = ("cpu", "memory")  # a head always asks for one of these


@dataclass(frozen=True, slots=True)
class Queues:
    """The manager's queues as they stand."""

    cluster_queues: Iterable[Raw] = ()
    local_queues: Iterable[Raw] = ()
    flavors: Mapping[str, Raw] = field(default_factory=dict)
    controllers: Mapping[str, str] = field(default_factory=dict)  # AdmissionCheck -> its controllerName


def rivals(queue: str, controllers: Mapping[str, str]) -> str:
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


def problems(check: str, queues: Queues) -> list[str]:
    """Say, for each ClusterQueue with the check, what of its layout cannot work; nothing for one that can."""
    return [
        sentence
        for raw in sorted(queues.cluster_queues, key=key_of)
        if check in listed(raw)
        for sentence in _of_queue(check, raw, queues)
    ]


def _of_queue(check: str, raw: Raw, queues: Queues) -> Iterator[str]:
    where, checks = f"ClusterQueue {key_of(raw)[1]}", listed(raw)
    rival = rivals(where, {name: queues.controllers.get(name, "") for name in checks})
    if rival:
        yield rival
    groups = [[one.get("name") or "" for one in group.get("flavors") or ()] for group in _groups(raw)]
    everywhere = frozenset[str]().union(*groups)
    covered = frozenset(checks[check])
    yield from (
        f"{where}: onFlavors of AdmissionCheck {check} names {name}, which is no flavor of it; correct the name."
        for name in sorted(covered - everywhere)
    )
    yield from _topologies(where, check, covered or everywhere, queues)
    if not covered:
        yield from _uncovered_pools(where, check, sorted(everywhere), queues)
        return
    for group, flavors in zip(_groups(raw), groups, strict=True):
        remote, local = [f for f in flavors if f in covered], [f for f in flavors if f not in covered]
        for name in remote:
            yield from _heads(where, name, bool(local), group, queues)
            yield from _pairs(where, name, local, queues)
    if any(_labels(name, queues).get(names.POOL_LABEL) for name in covered):
        yield from _local_queues(key_of(raw)[1], queues)


def _topologies(where: str, check: str, flavors: Iterable[str], queues: Queues) -> Iterator[str]:
    """A topology is of the manager's nodes, and remote workers are on none (docs/upstream.md, "What a check covers")."""
    for name in sorted(flavors):
        topology = _spec(name, queues).get("topologyName")
        if topology:
            yield (
                f"{where}: AdmissionCheck {check} is on ResourceFlavor {name}, whose spec.topologyName is {topology}: Kueue "
                "would look for the manager's nodes for remote workers; take a flavor without a topology."
            )


def _uncovered_pools(where: str, check: str, flavors: list[str], queues: Queues) -> Iterator[str]:
    """The layout with pools, and nothing that says which of them is remote."""
    pools = {name: pool for name in flavors if (pool := _labels(name, queues).get(names.POOL_LABEL))}
    if len(set(pools.values())) > 1:
        yield (
            f"{where}: AdmissionCheck {check} has no onFlavors, but {' and '.join(pools)} differ in {names.POOL_LABEL}: every "
            "job would be dispatched, local ones too; name the flavor of remote workers in onFlavors."
        )


def _heads(where: str, name: str, elsewhere: bool, group: Raw, queues: Queues) -> Iterator[str]:
    """A head that is counted in a remote flavor gets its node labels, and then no node of the manager takes it."""
    labels = _labels(name, queues)
    if elsewhere:
        if labels and not _keeps_out(_spec(name, queues)):
            yield (
                f"{where}: ResourceFlavor {name} has spec.nodeLabels but no taint that keeps heads out, so they are counted there "
                "as soon as the other flavors are full, and start nowhere; give it spec.nodeTaints and no spec.tolerations."
            )
    elif labels and set(group.get("coveredResources") or ()).intersection(_OF_EVERY_POD):
        yield (
            f"{where}: ResourceFlavor {name} with spec.nodeLabels is in onFlavors, and no other flavor has "
            f"{' and '.join(group['coveredResources'])}: heads get these labels too, and start nowhere; add a flavor for them."
        )


def _pairs(where: str, remote: str, local: Iterable[str], queues: Queues) -> Iterator[str]:
    """Both flavors need the same key (docs/upstream.md, "A selector meets a flavor's own keys only")."""
    theirs = _labels(remote, queues)
    for name in local:
        labels = _labels(name, queues)
        if name in queues.flavors and not any(labels.get(key, value) != value for key, value in theirs.items()):
            key = next(iter(theirs), names.POOL_LABEL)
            yield (
                f"{where}: no key of spec.nodeLabels has different values in ResourceFlavors {name} and {remote}, so Kueue counts "
                f"remote workers in {name}; give {key} to both, with a value of its own."
            )


def _local_queues(cluster_queue: str, queues: Queues) -> Iterator[str]:
    for raw in sorted(queues.local_queues, key=key_of):
        namespace, name = key_of(raw)
        if (raw.get("spec") or {}).get("clusterQueue") != cluster_queue:
            continue
        where = f"LocalQueue {name} in {namespace}"
        if label(raw, names.POOL_LABEL) != names.POOL_REMOTE:
            yield (
                f"{where} has no label {names.POOL_LABEL}={names.POOL_REMOTE}, so workers of its jobs run in the manager unless "
                f"they ask for {names.POOL_LABEL} themselves; add the label."
            )
        elif name == names.DEFAULT_QUEUE:
            yield (
                f"{where}: a job that names no queue gets this one too late for {names.POOL_LABEL}, so its workers run in the "
                "manager; give the LocalQueue another name."
            )


def _keeps_out(spec: Raw) -> bool:
    """Whether a flavor has a taint that a pod must tolerate itself: the flavor's own tolerations count for every pod."""
    tolerated = {one.get("key") for one in spec.get("tolerations") or ()}
    if None in tolerated or "" in tolerated:
        return False
    taints = spec.get("nodeTaints") or ()
    return any(one.get("effect") in _KEEPS_OUT and one.get("key") not in tolerated for one in taints)


def _groups(raw: Raw) -> list[Raw]:
    return list((raw.get("spec") or {}).get("resourceGroups") or ())


def _spec(flavor: str, queues: Queues) -> Raw:
    return (queues.flavors.get(flavor) or {}).get("spec") or {}


def _labels(flavor: str, queues: Queues) -> Mapping[str, str]:
    return _spec(flavor, queues).get("nodeLabels") or {}
