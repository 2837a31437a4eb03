"""What is known about one key: reads the stores and builds the facts that a decision takes.

It decides nothing and writes nothing. Clusters that cannot be seen contribute no facts but their silence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import api, checks, copies, flavorlabels, headaddress, layout, names, rayspec, references
from adapter.facts import Key, Raw, annotation, controller_uid, key_of, label, meta, uid_of
from adapter.gang import Gang
from adapter.groupworkload import Reservation, reservation
from adapter.headmirror import Standing
from adapter.placement import Placement, placement
from adapter.refusal import refusal as template_refusal
from adapter.refusal import waits_for_all
from adapter.reservation import template as reservation_template
from adapter.shell.claims import Claims
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home, by_ray_cluster
from adapter.shell.losses import Losses
from adapter.shell.member import Member
from adapter.shell.memory import Memory
from adapter.shell.slots import Slots
from adapter.shell.sources import Sources
from adapter.shell.store import Store
from adapter.slots import group_of, share_key, wants_slot
from adapter.target import Target
from adapter.worker import Silence, Worker
from adapter.workload import Job, PodSet, Workload, workload

CHANGED = (
    "Delete the job, and submit it again then."  # the same, where something else than the job is to be changed first
)
AGAIN = "Delete the job, and submit it again without that."  # the end of a refusal, for a job that is submitted
DEFAULT_TIMEOUT = timedelta(seconds=30)  # of a gang whose policy cannot be read: nothing is planned for it anyway
LOST_TIMEOUT = timedelta(minutes=5)  # the policy's own default: what runs must not be given up because a policy is gone


class Observer:
    """Reads facts from the manager's and the members' stores."""

    def __init__(self, home: Home, fleet: Fleet, claims: Claims, losses: Losses, manager: str) -> None:
        self._home, self._fleet, self._manager = home, fleet, manager
        self._losses, self._slots = losses, Slots(home, fleet, claims)
        self.sources = Sources(home)

    def seen(self) -> dict[str, Member]:
        """The members from whose stores something may be concluded."""
        return {name: member for name, member in self._fleet.members().items() if not member.why_silent}

    def workers_in(self, cluster: str) -> int:
        """For how many workers quota is held or asked for in a cluster: by the Placements of Workloads that are not over, or by
        what stands there, whichever is more."""
        places = (placement(raw) for raw in self._home.placements)
        live = (place for place in places if self._workload_of(place))
        wanted = sum(share.workers for place in live for share in place.live if share.cluster == cluster)
        member = self._fleet.members().get(cluster)
        standing = (
            podset for raw in (member.workloads if member else ()) for podset in raw["spec"].get("podSets") or ()
        )
        return max(wanted, sum(int(podset.get("count") or 0) for podset in standing))

    def gang(self, key: Key, memory: Memory, now: datetime) -> Gang:
        """The facts about a Workload."""
        raw = self._home.workloads.get(key)
        work = workload(raw) if raw else None
        check = self.check_of(work) if work else ""
        found = tuple(placement(p) for p in self._home.placements.group("/".join(key)))
        chosen, problem = self.policy(check)
        return Gang(
            workload=work,
            check=check,
            placements=found,
            reservations=tuple(self._reservations(key)),
            silent=self._silent(found),
            refused={c: why for p in found for c, why in memory.refusals(p).items()},
            timeout=chosen.policy.reservation_timeout if chosen else DEFAULT_TIMEOUT,
            problem=problem or self.rivals(work) or self.gate_problem(),
            refusal=self.refusal(work, check, chosen) if work and check else "",
            absent=self.absent(work, check) if work and check else "",
            others_wait=bool(work and self._others_wait(work)),
            room_changed=any(memory.planned.get(p.uid) != self._fleet.room_version for p in found),
            job_gone=bool(work and work.job and self._gone(work.job)),
            remote_podsets=tuple(p.name for p in self.remote_podsets(work, check)) if work else (),
            settles=min((memory.settles[p.uid] for p in found if p.uid in memory.settles), default=None),
            on_share_lost=chosen.policy.when_share_lost if chosen else "Replace",
            given_up=self._losses.given_up({s.cluster for p in found for s in p.shares}, _lost_after(chosen), now),
            draining=self._fleet.draining(),
            occupied=frozenset(share_key(slot) for p in found for slot in self._slots.held(p)),
            movers=tuple(one for p in found for one in self._slots.movers(p, self._admitted(p))),
            unplaced=any(self._slots.unplaced(p) for p in found),
            there=frozenset(share_key(slot) for p in found for slot in self._slots.there(p)),
            unusable={share: why for p in found for share, why in memory.unusable(p).items()},
            alive=frozenset(share_key(slot) for p in found for slot in self._slots.alive(p)),
        )

    async def look(self, key: Key) -> bool:
        """Read what `gang` needs and no store holds: the Secrets and ConfigMaps of a gang that waits for its check. Returns whether
        it lacks another one than before, or none now: those behind it are planned as if it took its share, unless it lacks one.
        """
        raw = self._home.workloads.get(key)
        work = workload(raw) if raw else None
        check = self.check_of(work) if work else ""
        if work and check and work.holds_quota and work.checks[check].state == names.CHECK_PENDING:
            before, podsets = self.absent(work, check), self.remote_podsets(work, check)
            wanted = {one for p in podsets for one in references.wanted(p.template.get("spec") or {})}
            if len(wanted) <= copies.MOST_OBJECTS:  # else it is refused, whatever they hold
                await self.sources.look(work.namespace, wanted)
                if self.sources.refusal(work, podsets):  # which is final: not of what somebody has put right meanwhile
                    await self.sources.look(work.namespace, wanted, fresh=True)
            return self.absent(work, check) != before
        return False

    def _gone(self, job: Job) -> bool:
        """Whether a job is not there any more, or will not be soon: one that this store has not heard of yet is looked at
        again when it has."""
        if job.kind not in names.RAY_KINDS:
            return False
        raw = self._written(job)
        return uid_of(raw) != job.uid or bool(meta(raw).get("deletionTimestamp"))

    def _written(self, job: Job) -> Raw:
        """The RayJob or RayCluster as it stands, empty while nothing is known of it."""
        store = self._home.ray_jobs if job.kind == "RayJob" else self._home.ray_clusters
        return store.get((job.namespace, job.name)) or {}

    def worker(self, key: Key, memory: Memory) -> Worker:
        """The facts about a worker pod of the manager and its copies."""
        pod, members = self._home.pods.get(key), self.seen()
        remotes = {name: found for name, member in members.items() if (found := member.pods.get(key))}
        stands_for = self.placement_of(pod) if pod else None
        work = self._workload_of(stands_for) if stands_for else None
        standing = self._reservations(work.key) if work and stands_for else []
        unmade = bool(pod and wants_slot(pod, remotes))
        if unmade:  # only a copy that is made now is told of its flavor
            standing = [_with_flavors(members[one.cluster], one) for one in standing]
        head = self._head(pod) if pod else None
        return Worker(
            pod=pod,
            remotes=remotes,
            placement=stands_for if work else None,
            job=work.job if work else None,
            belongs=self._belongs(pod, work) if pod and work else None,
            head=str(head["status"]["podIP"]) if head else "",
            reservations={(r.cluster, r.round): r for r in standing if stands_for and r.placement == stands_for.name},
            targets={n: self.target(m, work, stands_for, 0) for n, m in members.items()} if work and stands_for else {},
            taken=self._slots.taken(pod) if pod and unmade else (),
            draining=self._fleet.draining(),
            silence=self._silence(pod, work) if pod and work else None,
            made=bool(pod and uid_of(pod) in memory.made),
            head_pod=head,
            head_mirrors=_head_mirrors(pod, members) if pod else {},
            pull_secrets=_pull_secrets(pod, work) if pod and work else (),
        )

    def pull_secrets(self, pod: Raw) -> tuple[Raw, ...]:
        """Those that the pod's template names, while its Workload holds quota."""
        place = self.placement_of(pod)
        work = self._workload_of(place) if place else None
        return _pull_secrets(pod, work) if work else ()

    def _silence(self, pod: Raw, work: Workload) -> Silence | None:
        """What is to be thought of a pod whose cluster cannot be seen."""
        cluster, _ = share_key(annotation(pod, names.SLOT_ANNOTATION))
        if not cluster or cluster in self.seen():
            return None
        chosen, _ = self.policy(self.check_of(work))
        return self._losses.silence(cluster, pod, _lost_after(chosen))

    def _admitted(self, place: Placement) -> frozenset[tuple[str, int]]:
        """The Placement's shares that hold quota now, by cluster and round."""
        found = self._reservations((place.namespace, place.workload))
        return frozenset((r.cluster, r.round) for r in found if r.placement == place.name and r.admitted)

    def check_of(self, work: Workload) -> str:
        """The name of our AdmissionCheck on a Workload, empty when it has none."""
        return next(iter(self._our_checks(work)), "")

    def our_checks(self) -> set[str]:
        """The names of the AdmissionChecks that are ours."""
        every = self._controllers(key_of(raw)[1] for raw in self._home.checks)
        return {name for name, found in every.items() if found == names.CONTROLLER_NAME}

    def _our_checks(self, work: Workload) -> list[str]:
        return [name for name, found in self._controllers(work.checks).items() if found == names.CONTROLLER_NAME]

    def _controllers(self, listed: Iterable[str]) -> dict[str, str]:
        found = {name: (self._home.checks.named(name) or {}).get("spec") or {} for name in listed}
        return {name: str(spec.get("controllerName") or "") for name, spec in found.items()}

    def rivals(self, work: Workload | None) -> str:
        """Why the checks on a Workload exclude each other, empty when they do not."""
        if work is None:
            return ""
        return layout.rivals(f"ClusterQueue of LocalQueue {work.queue}", self._controllers(work.checks))

    def layout_problems(self, check: str) -> list[str]:
        """What cannot work in the queues that list an AdmissionCheck."""
        home = self._home
        queues = layout.Queues(
            list(home.cluster_queues),
            list(home.local_queues),
            _by_name(home.flavors),
            self._controllers(key_of(raw)[1] for raw in home.checks),
        )
        return layout.problems(check, queues)

    def written(self) -> checks.Written:
        """What admins have written that an AdmissionCheck may refer to."""
        configs = self._home.multikueue_configs
        return checks.Written(
            _by_name(self._home.policies),
            list(self._home.worker_clusters),
            _by_name(configs) if configs.synced else None,
        )

    def policy(self, check: str) -> tuple[checks.Chosen | None, str]:
        """The policy behind an AdmissionCheck, or why there is none."""
        try:
            return checks.policy(self._home.checks.named(check) or {}, self.written()), ""
        except api.Invalid as error:
            return None, str(error)

    def policy_name(self, check: str) -> str:
        """The DispatchPolicy that an AdmissionCheck names, whether or not it can be used."""
        return checks.policy_name(self._home.checks.named(check) or {})

    def gate_problem(self) -> str:
        """Why worker pods would not be held, empty when they would."""
        return checks.gate_problem(_by_name(self._home.gate_policies), _by_name(self._home.gate_bindings))

    def remote_podsets(self, work: Workload, check: str) -> list[PodSet]:
        """The worker groups that the check covers: all, or those with one of its flavors (kueue.md 1.2)."""
        strategy = self._home.cluster_queue((work.namespace, work.queue)).get("spec") or {}
        listed = (strategy.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
        flavors = next((set(c.get("onFlavors") or ()) for c in listed if c.get("name") == check), set[str]())
        workers = [p for p in work.podsets if p.name not in (names.HEAD, names.SUBMITTER) and p.count]
        return [p for p in workers if not flavors or p.flavors & flavors]

    def target(self, member: Member, work: Workload, place: Placement, round_: int) -> Target:
        """What the rewriter must know about the share that a round made in that cluster."""
        spec = member.spec
        return Target(
            cluster=member.name,
            zone=spec.zone or member.name,
            region=spec.region,
            labels=spec.labels,
            resources=spec.resources,
            head=spec.head,
            queue=work.queue,
            manager=self._manager,
            workload=work.name,
            workload_uid=work.uid,
            placement=place.name,
            share=f"{place.name}-{round_}",
            round=round_,
            pods=spec.pods,
            manager_flavor_keys=self._flavor_keys(work.podsets),
            manager_flavor_tolerations=self._flavor_tolerations(work.podsets),
        )

    def reservation_template(self, podset: PodSet) -> Raw:
        """A worker group's pod template as it is to be reserved, in whichever cluster."""
        nowhere = Target(
            cluster="",
            zone="",
            queue="",
            manager="",
            workload="",
            workload_uid="",
            placement="",
            share="",
            round=0,
            manager_flavor_keys=self._flavor_keys((podset,)),
            manager_flavor_tolerations=self._flavor_tolerations((podset,)),
        )
        return reservation_template(podset.template, nowhere)

    def placement_of(self, pod: Raw) -> Placement | None:
        """The Placement that a pod is labelled with."""
        found = self._home.placements.get((key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)))
        return placement(found) if found else None

    def _workload_of(self, place: Placement) -> Workload | None:
        raw = self._home.workloads.get((place.namespace, place.workload))
        work = workload(raw) if raw else None
        live = work and work.uid == place.workload_uid and work.attempt == place.attempt and work.holds_quota
        return work if live and work and not work.finished else None

    def _reservations(self, key: Key) -> list[Reservation]:
        return [
            _with_pods(member, reservation(name, raw))
            for name, member in self.seen().items()
            for raw in member.workloads.group("/".join(key))
        ]

    def _silent(self, placements: tuple[Placement, ...]) -> dict[str, str]:
        quiet = self._fleet.silent()
        members = self._fleet.members()
        for share in (s for p in placements for s in p.shares):
            if share.cluster not in members and share.cluster not in quiet:
                quiet[share.cluster] = f"there is no WorkerCluster {share.cluster}"
        return quiet

    def refusal(self, work: Workload, check: str, chosen: checks.Chosen | None) -> str:
        """Why a job can never run remotely, empty when it can."""
        ours = work.job and work.job.kind in names.RAY_KINDS
        raw = self._written(work.job) if work.job and ours else {}
        if found := self.refusal_of(raw, work, check, chosen):
            return found
        why = self.sources.refusal(work, self.remote_podsets(work, check))
        return f"{_of_job(work)}: {why}. {CHANGED}" if why else ""

    def absent(self, work: Workload, check: str) -> str:
        """Which Secret or ConfigMap its workers need and the manager does not have, empty when it has all."""
        why = self.sources.absent(work, self.remote_podsets(work, check))
        return f"{_of_job(work)}: {why}." if why else ""

    def refusal_of(self, raw: Raw, work: Workload, check: str, chosen: checks.Chosen | None) -> str:
        """The same for a Workload whose RayJob or RayCluster is `raw`, whether or not it is submitted."""
        if work.job is None or work.job.kind not in names.RAY_KINDS:
            kind = work.job.kind if work.job else "pod"
            return f"AdmissionCheck {check} dispatches {' and '.join(names.RAY_KINDS)} only, found a {kind}; use another queue."
        if beside := rayspec.refusal(work.job.kind, raw):
            return f"{work.job.kind} {work.job.name}: {beside}. {AGAIN}"
        given = self._account_given(chosen)
        for podset in self.remote_podsets(work, check):
            why = template_refusal(podset.template, account_given=given)
            if why:
                where = f"{work.job.kind} {work.job.name}: worker group {podset.name}"
                return f"{where}: {why}. {AGAIN}"
        if chosen and chosen.policy.gang == "BestEffort" and (why := waits_for_all(work.job.kind, raw)):
            return f"{work.job.kind} {work.job.name}: {why}"
        return ""

    def _account_given(self, chosen: checks.Chosen | None) -> bool:
        """Whether each cluster that the policy names has a service account for the pods that come to it; where no policy can be
        read nothing is planned, and nothing shall be refused for good."""
        named = (self._home.worker_clusters.named(cluster) for cluster in chosen.clusters) if chosen else ()
        pods = [(raw.get("spec") or {}).get("pods") or {} for raw in named if raw]
        return all(one.get("serviceAccountName") for one in pods) and (bool(pods) or chosen is None)

    def _others_wait(self, work: Workload) -> bool:
        queue = self._home.cluster_queue((work.namespace, work.queue))
        return int((queue.get("status") or {}).get("pendingWorkloads") or 0) > 0

    def _belongs(self, pod: Raw, work: Workload) -> bool | None:
        namespace = key_of(pod)[0]
        ray_cluster = self._home.ray_clusters.get((namespace, label(pod, names.RAY_GCS_CLUSTER_LABEL)))
        if ray_cluster is None and controller_uid(pod):
            return None  # deleted before its pods, or not heard of yet
        if ray_cluster is None or work.job is None or controller_uid(pod) != uid_of(ray_cluster):
            return False
        return work.job.uid in (uid_of(ray_cluster), controller_uid(ray_cluster))

    def _head(self, pod: Raw) -> Raw | None:
        """The head of the pod's RayCluster, None while there is none with an address that stays."""
        for head in self._home.heads.group(by_ray_cluster(pod)):
            same = controller_uid(head) == controller_uid(pod)
            if same and not head["metadata"].get("deletionTimestamp") and (head.get("status") or {}).get("podIP"):
                return head
        return None

    def _flavor_keys(self, podsets: Iterable[PodSet]) -> frozenset[str]:
        """The node labels that these podsets' flavors put on pods in the manager: they mean nothing elsewhere."""
        return frozenset(key for spec in self._flavors(podsets) for key in spec.get("nodeLabels") or {})

    def _flavor_tolerations(self, podsets: Iterable[PodSet]) -> tuple[dict[str, object], ...]:
        return tuple(one for spec in self._flavors(podsets) for one in spec.get("tolerations") or ())

    def _flavors(self, podsets: Iterable[PodSet]) -> list[Raw]:
        """The flavors that Kueue assigned: another queue's flavor may have a key that a user of this one asks for."""
        assigned = sorted(frozenset[str]().union(*(podset.flavors for podset in podsets)))
        return [(self._home.flavors.named(name) or {}).get("spec") or {} for name in assigned]


def _of_job(work: Workload) -> str:
    return f"{work.job.kind} {work.job.name}" if work.job else f"Workload {work.name}"


def _pull_secrets(pod: Raw, work: Workload) -> tuple[Raw, ...]:
    """Admission gives a pod that has none those of its account, so the pod itself does not tell."""
    specs = [p.template.get("spec") or {} for p in work.podsets if p.name == group_of(pod)]
    return tuple(one for spec in specs for one in spec.get("imagePullSecrets") or ())


def _lost_after(chosen: checks.Chosen | None) -> timedelta:
    return chosen.policy.worker_lost_timeout if chosen else LOST_TIMEOUT


def _head_mirrors(pod: Raw, members: Mapping[str, Member]) -> dict[str, Standing]:
    service = headaddress.service(pod)
    found = {name: member.head_mirror(service) for name, member in members.items()} if service else {}
    return {name: standing for name, standing in found.items() if standing}


def _by_name(store: Store) -> dict[str, Raw]:
    return {key_of(raw)[1]: raw for raw in store}


def _with_flavors(member: Member, found: Reservation) -> Reservation:
    """What Ray is told of the nodes that each role was given."""
    told = {
        role: {
            key: value
            for flavor in flavors
            for key, value in flavorlabels.ray_labels(_node_labels(member.flavors.named(flavor))).items()
        }
        for role, flavors in found.flavors.items()
    }
    return replace(found, ray_labels={role: labels for role, labels in told.items() if labels})


def _node_labels(flavor: Raw | None) -> Raw:
    return ((flavor or {}).get("spec") or {}).get("nodeLabels") or {}


def _with_pods(member: Member, found: Reservation) -> Reservation:
    """Whether an evicted share has lost its last pod before Kueue took note of it."""
    if not found.evicted or found.reserved_at is None:
        return found
    pods = member.pods.group(f"{found.namespace}/{found.placement}")
    on_it = (share_key(annotation(pod, names.SLOT_ANNOTATION)) == (member.name, found.round) for pod in pods)
    return replace(found, stranded=not any(on_it))
