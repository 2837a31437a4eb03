"""Does what the events of a plan say to a world, and ends it again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from adapter import names
from adapter.objects.unstructured import label, meta
from adapter.shell.kube import resources
from hack.simulation import restore, strikes
from hack.simulation.kubelet import is_alive, runs
from hack.simulation.link import Link
from hack.simulation.plan import Event
from hack.simulation.replica import MANAGER, Replica
from hack.simulation.world import World

_MOST_WORKERS = 6
# Faults beside which the controller can do all that it would do without them, as soon.
_QUIET = frozenset({"slow-start", "crash-loop", "tenant", "evict-worker", "cordon", "cordon-nodes", "drain", "end-job"})
_KNOWN_WITHIN = 60.0  # seconds until every leader has seen that a drain is over
_STOPPED = (3.0, 20.0)  # seconds in which an API server does not serve when its etcd is restored
Undo = Callable[[], None]


class Faults:
    """Runs a plan. `active` counts the faults that last; `calm_since` is when the last one was over. So do
    `disturbing` and `free_since` for those that keep the controller from something.
    """

    def __init__(self, world: World) -> None:
        self.world, self._loop = world, world.loop
        self.active, self.calm_since = 0, world.loop.time()
        self.disturbing, self.free_since = 0, world.loop.time()
        self.jobs: dict[str, int] = {}  # those that live, and their workers

    def begin(self, event: Event) -> None:
        """Do what an event says, now."""
        self.world.trace.note(str(event))
        if event.kind == "job":
            self._submit(event)
            return
        undo = _KINDS[event.kind](self, event)
        self.active += 1
        self.disturbing += event.kind not in _QUIET
        self._loop.call_later(event.seconds, self._end, event, undo)

    def _end(self, event: Event, undo: Undo | None) -> None:
        if undo:
            undo()
        self.world.trace.note(f"{event.number} is over")
        self.active -= 1
        self.calm_since = self._loop.time()
        if event.kind not in _QUIET:
            self.disturbing -= 1
            self.free_since = self._loop.time()

    def _submit(self, event: Event) -> None:
        name, most = f"job-{event.number}", max(self.world.shape.cpus.values())
        workers = 1 + int(event.amount * (most if self.world.shape.gang == "SameCluster" else _MOST_WORKERS))
        self.jobs[name] = workers
        self.world.submit(name, workers)
        self._loop.call_later(event.seconds, self.end_job, name)

    def end_job(self, name: str) -> None:
        """A user deletes a job."""
        if self.jobs.pop(name, None):
            self.world.trace.note(f"{name} is deleted")
            self.world.end(name)

    # --- what faults act on ----------------------------------------------------------------------------------------

    def replica(self, event: Event) -> Replica:
        """One of the replicas, most often the leader."""
        first, second = self.world.replicas
        leader = self.world.leader() or first
        return leader if event.amount < 0.75 else (second if leader is first else first)

    def _workers(self, event: Event) -> list[dict[str, Any]]:
        return [pod for pod in self.world.members[event.target].kubelet.workers() if is_alive(pod)]

    def _one_worker(self, event: Event) -> dict[str, Any] | None:
        found = self._workers(event)
        return found[int(event.amount * len(found))] if found else None

    def change_link(self, host: str, **fields: Any) -> Undo:
        """Change the link of all processes to a host; returns what restores it."""
        link, usual = self.world.network.link(host), Link()
        for name, value in fields.items():
            setattr(link, name, value)

        def undo() -> None:
            for name in fields:
                setattr(link, name, getattr(usual, name))

        return undo

    def cut(self, host: str, event: Event) -> Undo:
        """Cut the API of a cluster off, for all or for one replica."""
        how = "silent" if event.amount < 0.6 else "refused"
        if event.amount * 10 % 1 < 0.75:
            return self.change_link(host, cut=how)
        link = self.world.network.link(host, self.replica(event).name)
        link.cut = how

        def undo() -> None:
            link.cut = ""

        return undo

    def cut_data(self, event: Event) -> Undo:
        member = self.world.members[event.target]
        member.is_data_cut = True

        def undo() -> None:
            member.is_data_cut = False

        return undo

    def cut_both(self, event: Event) -> Undo:
        first, second = self.change_link(event.target, cut="silent"), self.cut_data(event)

        def undo() -> None:
            first()
            second()

        return undo

    def crash(self, event: Event) -> None:
        self.replica(event).crash(max(event.seconds, 1.0))

    def crash_both(self, event: Event) -> None:
        for replica in self.world.replicas:
            replica.crash(max(event.seconds * (0.5 + event.amount / 2), 1.0))

    def set_clock(self, holder: Any, event: Event) -> Undo:
        """Put a clock back or forward, by up to an hour."""
        holder.skew += (event.amount - 0.5) * 7_200

        def undo() -> None:
            holder.skew = 0.0

        return undo

    def set_pace(self, holder: Any, name: str, pace: tuple[float, float]) -> Undo:
        usual = getattr(holder, name)
        setattr(holder, name, pace)
        return lambda: setattr(holder, name, usual)

    def set_errors(self, host: str, event: Event) -> Undo:
        server = self.world.manager if host == MANAGER else self.world.members[host].server
        server.errors = event.amount * 0.6

        def undo() -> None:
            server.errors = 0.0

        return undo

    def end_watches(self, event: Event) -> None:
        self.world.network.link(event.target or MANAGER).opened += 1

    def expire_watches(self, event: Event) -> None:
        server = self.world.members[event.target].server if event.target else self.world.manager
        server.forget_past()
        self.end_watches(event)

    def restore(self, event: Event) -> Undo:
        """Stop a worker cluster's API server, and have it begin again from a backup of the time of this event."""
        member, backup = self.world.members[event.target], self.world.members[event.target].server.backup()

        def undo() -> None:
            serve = self.change_link(event.target, cut="refused")
            restore.restore(member.server, member.kubelet, backup, bump=event.amount < 0.3)
            self.world.later(*_STOPPED, serve)

        return undo

    def delete_worker(self, event: Event) -> None:
        if pod := self._one_worker(event):
            self.world.members[event.target].server.delete(resources.PODS, pod, "user")

    def evict_worker(self, event: Event) -> None:
        if pod := self._one_worker(event):
            self.world.members[event.target].kubelet.fail(pod, "Evicted")

    def crash_loop(self, event: Event) -> Undo | None:
        """A worker's container ends, and again each time it starts."""
        kubelet, pod = self.world.members[event.target].kubelet, self._one_worker(event)
        if pod is None:
            return None
        kubelet.crashing.add(meta(pod)["uid"])
        kubelet.unready(pod)
        return lambda: kubelet.crashing.discard(meta(pod)["uid"])

    def delete_manager_pod(self, event: Event) -> None:
        """A user deletes a worker's pod in the manager; KubeRay creates another one of the same number."""
        if found := [*self.world.manager_pods().values()]:
            self.world.manager.delete(resources.PODS, found[int(event.amount * len(found))], "user")

    def delete_share(self, event: Event) -> None:
        server = self.world.members[event.target].server
        if found := server.all(resources.WORKLOADS):
            share = found[int(event.amount * len(found))]
            self.world.deleted_by_hand.add(share["metadata"]["uid"])
            server.remove(resources.WORKLOADS, share, "user")

    def delete_placement(self, event: Event) -> None:
        """An admin or a GitOps tool deletes the Placement of a job, which then begins anew."""
        if found := self.world.manager.all(resources.PLACEMENTS):
            self.world.manager.remove(resources.PLACEMENTS, found[int(event.amount * len(found))], "user")

    def tenant(self, event: Event) -> Undo:
        kueue = self.world.members[event.target].kueue
        kueue.want(1 + int(event.amount * kueue.cpus))
        return lambda: kueue.want(0)

    def move_head(self, event: Event) -> None:
        pods = self.world.manager.all(resources.PODS)
        found = [pod for pod in pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD and runs(pod)]
        if found:
            self.world.manager.delete(resources.PODS, found[int(event.amount * len(found))], "user")

    def busy_heads(self, event: Event) -> Undo:
        self.world.heads_busy_since = self._loop.time()

        def undo() -> None:
            self.world.heads_busy_since = None
            self.world.heads_answer_since = self._loop.time()

        return undo

    def set_cluster(self, field: str, event: Event) -> Undo:
        """An admin cordons or drains a worker cluster."""
        self._write_cluster(event.target, field, True)
        member = self.world.members[event.target]
        member.is_drained = member.is_drained or field == "draining"

        def undo() -> None:
            self._write_cluster(event.target, field, False)
            self._loop.call_later(_KNOWN_WITHIN, setattr, member, "is_drained", False)

        return undo

    def _write_cluster(self, name: str, field: str, value: bool) -> None:
        if found := self.world.manager.find(resources.WORKER_CLUSTERS, "", name):
            self.world.manager.patch(resources.WORKER_CLUSTERS, found, {"spec": {field: value}}, "admin")

    def cordon_nodes(self, event: Event) -> Undo:
        """An admin of a worker cluster cordons all of its nodes."""
        kubelet = self.world.members[event.target].kubelet
        kubelet.is_cordoned = True

        def undo() -> None:
            kubelet.is_cordoned = False

        return undo

    def lose_login(self, event: Event) -> Undo:
        """An admin deletes the Secret with a cluster's kubeconfig and creates it again, mostly with a new login."""
        name, namespace = event.target, names.SYSTEM_NAMESPACE
        secret = self.world.manager.find(resources.SECRETS, namespace, name)
        if secret is not None:
            self.world.manager.remove(resources.SECRETS, secret, "admin")
        return lambda: self.world.write_login(name, f"t{event.number}" if event.amount < 0.7 else "t")

    def end_one_job(self, event: Event) -> None:
        if self.jobs:
            self.end_job([*self.jobs][int(event.amount * len(self.jobs))])


_Do = Callable[[Faults, Event], Undo | None]
_KINDS: dict[str, _Do] = {
    "cut": lambda self, event: self.cut(event.target, event),
    "cut-data": Faults.cut_data,
    "cut-both": Faults.cut_both,
    "cut-manager": lambda self, event: self.cut(MANAGER, event),
    "cut-when-ready": strikes.cut_when_ready,
    "cut-when-replaced": strikes.cut_when_replaced,
    "lose-create": strikes.lose_create,
    "slow": lambda self, event: self.change_link(event.target, latency=(0.1, 1.0 + 6 * event.amount)),
    "slow-manager": lambda self, event: self.change_link(MANAGER, latency=(0.05, 0.1 + 2 * event.amount)),
    "lose-answers": lambda self, event: self.change_link(event.target, answers_lost=event.amount),
    "lose-manager-answers": lambda self, event: self.change_link(MANAGER, answers_lost=event.amount * 0.7),
    "errors": lambda self, event: self.set_errors(event.target, event),
    "manager-errors": lambda self, event: self.set_errors(MANAGER, event),
    "lag": lambda self, event: self.change_link(event.target, lag=(0.5, 1 + 25 * event.amount)),
    "manager-lag": lambda self, event: self.change_link(MANAGER, lag=(0.2, 1 + 15 * event.amount)),
    "end-watches": Faults.end_watches,
    "expire-watches": Faults.expire_watches,
    "expire-manager-watches": lambda self, event: self.expire_watches(replace(event, target="")),
    "repeat": lambda self, event: self.change_link(event.target, repeats=0.5),
    "crash": Faults.crash,
    "crash-both": Faults.crash_both,
    "crash-at-write": strikes.crash_at_write,
    "late-slots": strikes.late_slots,
    "freeze": strikes.freeze,
    "evict-when-admitted": strikes.evict_when_admitted,
    "delete-manager-pod": Faults.delete_manager_pod,
    "stop": lambda self, event: self.replica(event).stop(),
    "manager-clock": lambda self, event: self.set_clock(self.world.manager, event),
    "cluster-clock": lambda self, event: self.set_clock(self.world.members[event.target].server, event),
    "node-clock": lambda self, event: self.set_clock(self.replica(event).node, event),
    "restore": Faults.restore,
    "delete-worker": Faults.delete_worker,
    "evict-worker": Faults.evict_worker,
    "crash-loop": Faults.crash_loop,
    "delete-share": Faults.delete_share,
    "delete-placement": Faults.delete_placement,
    "tenant": Faults.tenant,
    "slow-kueue": lambda self, event: self.set_pace(self.world.members[event.target].kueue, "pace", (1.0, 20.0)),
    "slow-start": lambda self, event: self.set_pace(self.world.members[event.target].kubelet, "start", (20.0, 200.0)),
    "slow-end": lambda self, event: self.set_pace(self.world.members[event.target].kubelet, "end", (20.0, 90.0)),
    "move-head": Faults.move_head,
    "busy-heads": Faults.busy_heads,
    "cordon-nodes": Faults.cordon_nodes,
    "lose-login": Faults.lose_login,
    "cordon": lambda self, event: self.set_cluster("cordoned", event),
    "drain": lambda self, event: self.set_cluster("draining", event),
    "end-job": Faults.end_one_job,
}
