"""What is known about one gang: reads the stores and builds the facts that a decision takes.

It decides nothing and writes nothing. Clusters that cannot be seen contribute no facts but their silence. Each of its parts
answers a question of its own, to whoever asks it.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.gang.facts import Gang
from adapter.objects import references
from adapter.objects.placement import Placement, placement
from adapter.objects.raw import Key, meta, uid_of
from adapter.objects.workerpod import share_key
from adapter.objects.workload import Job, Workload, workload
from adapter.rewrite import copies
from adapter.rewrite.target import Target
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager import Home
from adapter.shell.observe.losses import Losses
from adapter.shell.observe.memory import Memory
from adapter.shell.observe.policies import Policies, lost_after
from adapter.shell.observe.refusals import Refusals
from adapter.shell.observe.reservations import Shares
from adapter.shell.observe.slots import Claims, Slots
from adapter.shell.observe.sources import Sources
from adapter.shell.observe.targets import Targets
from adapter.shell.observe.workers import Workers

DEFAULT_TIMEOUT = timedelta(seconds=30)  # of a gang whose policy cannot be read: nothing is planned for it anyway


class Observer:
    """Reads facts from the manager's and the members' stores."""

    def __init__(self, home: Home, fleet: Fleet, claims: Claims, losses: Losses, manager: str) -> None:
        self._home, self._fleet, self._losses, self._slots = home, fleet, losses, Slots(home, fleet, claims)
        self.policies, self.sources = Policies(home), Sources(home)
        self.refusals = Refusals(home, self.policies, self.sources)
        self.targets, self.shares = Targets(home, manager), Shares(home, fleet)
        self.workers = Workers(home, fleet, self.policies, self.shares, self.targets, self._slots, losses)

    def gang(self, key: Key, memory: Memory, now: datetime) -> Gang:
        """The facts about a Workload."""
        raw = self._home.workloads.get(key)
        work = workload(raw) if raw else None
        check = self.policies.check_of(work) if work else ""
        found = tuple(placement(p) for p in self._home.placements.group("/".join(key)))
        chosen, problem = self.policies.policy(check)
        return Gang(
            workload=work,
            check=check,
            placements=found,
            reservations=tuple(self.shares.standing(key)),
            silent=self._silent(found),
            refused={c: why for p in found for c, why in memory.refusals(p).items()},
            timeout=chosen.policy.reservation_timeout if chosen else DEFAULT_TIMEOUT,
            problem=problem or self.policies.rivals(work) or self.policies.gate_problem(),
            refusal=self.refusals.refusal(work, check, chosen) if work and check else "",
            absent=self.refusals.absent(work, check) if work and check else "",
            others_wait=bool(work and self._others_wait(work)),
            room_changed=any(memory.planned.get(p.uid) != self._fleet.room_version for p in found),
            job_gone=bool(work and work.job and self._gone(work.job)),
            targets=self._targets(work, found) if work else {},
            remote_podsets=tuple(p.name for p in self.policies.remote_podsets(work, check)) if work else (),
            settles=min((memory.settles[p.uid] for p in found if p.uid in memory.settles), default=None),
            on_share_lost=chosen.policy.when_share_lost if chosen else "Replace",
            given_up=self._losses.given_up({s.cluster for p in found for s in p.shares}, lost_after(chosen), now),
            draining=self._fleet.draining(),
            occupied=frozenset(share_key(slot) for p in found for slot in self._slots.held(p)),
            movers=tuple(one for p in found for one in self._slots.movers(p, self.shares.admitted(p))),
            unplaced=any(self._slots.unplaced(p) for p in found),
            there=frozenset(share_key(slot) for p in found for slot in self._slots.there(p)),
            unusable={
                share: why
                for p in found
                for share, why in memory.unusable(p, map(uid_of, self._slots.living(p))).items()
            },
            unreleased=dict(memory.unreleased),
            alive=frozenset(share_key(slot) for p in found for slot in self._slots.alive(p)),
        )

    def _targets(self, work: Workload, placements: tuple[Placement, ...]) -> dict[str, Target]:
        """What the rewriter must know of each cluster that a share is asked for in, as far as it can be seen."""
        place = next((p for p in placements if p.attempt == work.attempt), None)
        seen = self._fleet.seen()
        near = {share.cluster: seen[share.cluster] for share in (place.live if place else ()) if share.cluster in seen}
        return self.targets.every(near, work, place) if place else {}

    async def look(self, key: Key) -> bool:
        """Read what `gang` needs and no store holds: the Secrets and ConfigMaps of a gang that waits for its check. Returns whether
        it lacks another one than before, or none now: those behind it are planned as if it took its share, unless it lacks one.
        """
        raw = self._home.workloads.get(key)
        work = workload(raw) if raw else None
        check = self.policies.check_of(work) if work else ""
        if work and check and work.holds_quota and work.checks[check].state == names.CHECK_PENDING:
            before, podsets = self.refusals.absent(work, check), self.policies.remote_podsets(work, check)
            wanted = {one for p in podsets for one in references.wanted(p.template.get("spec") or {})}
            if len(wanted) <= copies.MOST_OBJECTS:  # else it is refused, whatever they hold
                await self.sources.look(work.namespace, wanted)
                if self.sources.refusal(work, podsets):  # which is final: not of what somebody has put right meanwhile
                    await self.sources.look(work.namespace, wanted, fresh=True)
            return self.refusals.absent(work, check) != before
        return False

    def leaving(self, work: Workload) -> bool:
        """Whether a Workload or its job is being deleted, which a finalizer may keep up for hours."""
        raw = self._home.job(work.job) if work.job and work.job.kind in names.RAY_KINDS else {}
        job_leaves = bool(work.job and uid_of(raw) == work.job.uid and meta(raw).get("deletionTimestamp"))
        return work.deleted or job_leaves

    def _gone(self, job: Job) -> bool:
        """Whether a job is not there any more, or will not be soon: one that this store has not heard of yet is looked at
        again when it has."""
        if job.kind not in names.RAY_KINDS:
            return False
        raw = self._home.job(job)
        return uid_of(raw) != job.uid or bool(meta(raw).get("deletionTimestamp"))

    def _silent(self, placements: tuple[Placement, ...]) -> dict[str, str]:
        quiet = self._fleet.silent()
        members = self._fleet.members()
        for share in (s for p in placements for s in p.shares):
            if share.cluster not in members and share.cluster not in quiet:
                quiet[share.cluster] = f"there is no WorkerCluster {share.cluster}"
        return quiet

    def _others_wait(self, work: Workload) -> bool:
        queue = self._home.cluster_queue((work.namespace, work.queue))
        return int((queue.get("status") or {}).get("pendingWorkloads") or 0) > 0
