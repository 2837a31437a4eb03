"""Faults that strike at a moment: when a worker becomes ready, when a replica writes something, when a worker fails."""

from collections.abc import Callable
from typing import Protocol

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true, label
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube import resources
from hack.simulation import virtualtime
from hack.simulation.link import Request
from hack.simulation.plan import Event
from hack.simulation.replica import MANAGER, Replica
from hack.simulation.world import World

_LATE, _LATER = 20.0, 30.0  # seconds by which a write is late, and by how much it may be later still
_BRIEF = (10.0, 20.0)  # seconds for which a cluster is cut off briefly
_LAG = (20.0, 40.0)  # seconds until a pod is observed whose creation has no answer
_SLOW_KUBERAY = (5.0, 8.0)  # seconds until it acts
Undo = Callable[[], None]
Strike = Callable[[], None]


class Hands(Protocol):
    """What these faults use of all faults."""

    world: World

    def replica(self, event: Event) -> Replica: ...
    def change_link(self, host: str, **fields: object) -> Undo: ...
    def cut_data(self, event: Event) -> Undo: ...
    def set_cluster(self, field: str, event: Event) -> Undo: ...


def cut_when_ready(hands: Hands, event: Event) -> Undo:
    """Cut a cluster off in the moment in which a worker becomes ready there."""
    kubelet = hands.world.members[event.target].kubelet
    usual, undos = kubelet.on_ready, list[Undo]()

    def strike(pod: Raw) -> None:
        usual(pod)
        if not undos:
            undos.append(hands.change_link(event.target, cut="silent"))
            hands.world.trace.note(f"{event.number} strikes")

    def undo() -> None:
        kubelet.on_ready = usual
        for one in undos:
            one()

    kubelet.on_ready = strike
    return undo


def cut_when_replaced(hands: Hands, event: Event) -> Undo:
    """Cut a cluster off for some seconds in the moment in which a worker fails, before KubeRay replaces it."""
    ended, kuberay = list[bool](), hands.world.kuberay
    usual, kuberay.pace = kuberay.pace, _SLOW_KUBERAY

    def changed(path: str, before: Raw | None, after: Raw | None) -> None:
        is_failure = before and after and not has_ended(before) and has_ended(after)
        if path == resources.PODS.path() and is_failure and not ended and label(after or {}, names.PLACEMENT_LABEL):
            ended.append(True)
            hands.world.trace.note(f"{event.number} strikes")
            hands.world.later(*_BRIEF, hands.change_link(event.target, cut="refused"))

    def undo() -> None:
        ended.append(True)
        kuberay.pace = usual

    hands.world.manager.follow(changed)
    return undo


def crash_at_write(hands: Hands, event: Event) -> None:
    """Crash a replica at one of its next writes: before it is sent, or while it is under way."""
    replica = hands.replica(event)
    rest = [1 + int(event.amount * 100) % 12]

    def count(*_: object) -> None:
        rest[0] -= 1
        if rest[0] == 0:
            hands.world.loop.call_soon(replica.crash, max(event.seconds, 1.0))

    replica.process.on_write = count


def freeze(hands: Hands, event: Event) -> Undo:
    """Have a replica's machine stand still: at once, or when it has sent its next write."""
    replica, thaws = hands.replica(event), list[Undo]()

    def strike() -> None:
        if not thaws:
            hands.world.trace.note(f"{replica.name} stands still")
            thaws.append(hands.world.loop.freeze(replica.node.name))

    if event.amount * 10 % 1 < 0.3:
        strike()
    else:
        _strike_at(replica, lambda _, request: "/leases" not in request.path, strike, hands)
    return lambda: _end(replica, thaws)


def late_slots(hands: Hands, event: Event) -> Undo:
    """Have the slots that a replica assigns written late, and crash it after the first: the next leader assigns others,
    because the cluster is drained.
    """
    replica, undos = hands.replica(event), list[Undo]()

    def strike() -> None:
        hands.world.trace.note(f"{event.number} strikes")
        undos.append(hands.set_cluster("draining", event))
        hands.world.later(0.2, 1.0, replica.crash, 1.0)

    def look(host: str, request: Request) -> None:
        if _assigns_slot(host, request):
            process.late = _LATE + _LATER * event.amount
            if not undos and f'"{event.target}"'.encode() in request.body:
                hands.world.loop.call_soon(strike, context=virtualtime.MODELS)
        else:
            process.late = 0.0

    process = replica.process
    process.on_write = look

    return lambda: _end(replica, undos)


def evict_when_admitted(hands: Hands, event: Event) -> Undo:
    """Have a share evicted for a local tenant when it has just been admitted, and the watches there late."""
    member, undos = hands.world.members[event.target], list[Undo]()

    def strike() -> None:
        member.kueue.want(member.kueue.cpus)
        undos.append(lambda: member.kueue.want(0))

    def changed(path: str, before: Raw | None, after: Raw | None) -> None:
        is_new = (
            after and is_condition_true(after, names.ADMITTED) and not is_condition_true(before or {}, names.ADMITTED)
        )
        if path == resources.WORKLOADS.path() and is_new and not undos:
            hands.world.trace.note(f"{event.number} strikes")
            undos.append(lag)
            hands.world.later(0.0, 0.2, strike)

    lag = hands.change_link(event.target, lag=(1.0, 1.5 + 2 * event.amount))
    undos_at_end = [lag]
    member.server.follow(changed)

    def undo() -> None:
        for one in (*undos, *undos_at_end):
            one()
        undos.append(lag)

    return undo


def lose_create(hands: Hands, event: Event) -> Undo:
    """Lose the answer to the next creation of a remote pod in a cluster, which is then drained, or cut off with its
    pods; and most often crash the replica.
    """
    replica, undos = hands.replica(event), list[Undo]()

    def strike() -> None:
        hands.world.trace.note(f"{event.number} strikes")
        undos.append(hands.change_link(event.target, answers_lost=1.0))
        if event.amount < 0.3:
            undos.append(hands.change_link(event.target, lag=_LAG))
            undos.append(hands.set_cluster("draining", event))
        else:
            hands.world.later(0.1, 0.2, cut)
        if event.amount > 0.5:
            hands.world.later(0.2, 0.4, replica.crash, 1.0 + 20 * event.amount)

    def cut() -> None:
        undos.extend((hands.change_link(event.target, cut="silent"), hands.cut_data(event)))
        if is_over:
            undo()

    def undo() -> None:
        is_over.append(True)
        _end(replica, undos)

    is_over: list[bool] = []
    _strike_at(replica, lambda host, request: host == event.target and _creates_pod(request), strike, hands)
    return undo


def _end(replica: Replica, undos: list[Undo]) -> None:
    """Undo what struck; what has not struck does not strike any more."""
    replica.process.on_write = None
    for undo in undos:
        undo()
    undos.clear()


def _strike_at(replica: Replica, is_it: Callable[[str, Request], bool], strike: Strike, hands: Hands) -> None:
    """Strike once, with the write that is meant, after which the replica waits for its answer."""

    def look(host: str, request: Request) -> None:
        if is_it(host, request):
            replica.process.on_write = None
            hands.world.loop.call_soon(strike, context=virtualtime.MODELS)

    replica.process.on_write = look


def _creates_pod(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/pods") and "dryRun" not in request.query


def _assigns_slot(host: str, request: Request) -> bool:
    return host == MANAGER and request.method == "PATCH" and names.SLOT_ANNOTATION.encode() in request.body
