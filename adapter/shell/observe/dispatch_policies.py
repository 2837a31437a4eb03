"""Finds a Workload's AdmissionCheck, its DispatchPolicy, and errors in the admins' objects.

It does not check whether a policy suits a job.
"""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.admission import crd_fields, gate, queue_layout
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, policy_of_check
from adapter.objects import specs
from adapter.objects.admissioncheck import covered_groups, expected_checks, our_checks, read_check
from adapter.objects.queues import read_cluster_queue, read_flavor, read_local_queue
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, key_of, mapping_field, mapping_list, text_field
from adapter.objects.workload import PodSet, Workload
from adapter.relay import outdated_network, relay_conflict, relay_keys, relay_network, relay_pod
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.store import Store
from adapter.shell.shipped_policies import gate_policy

_UNSUBMITTED = "unsubmitted"  # instead of the uid and the name that a planned job does not have yet
_UNPREPARED_HEAD = "the job's head was started without it; start the job again to use it"
_RELAY_RETRY = timedelta(minutes=5)  # until a head is prepared again after a denial that was not repeated


class PolicyObserver:
    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self.read_versions: tuple[object, ...] = ()  # the store versions of `_policies_by_check`
        self._policies_by_check: dict[str, tuple[ResolvedPolicy | None, str]] = {}
        self._relayed_networks: dict[str, dict[str, specs.NetworkSpec]] = {}  # of the same versions
        self._relay_denials: dict[str, tuple[str, datetime]] = {}  # by namespace, with the time of the next try
        self._our_checks: tuple[int, frozenset[str]] = (-1, frozenset())  # the store version, and the names
        self._relay_key = ""  # the fingerprint of the one that was seen last

    def check_of(self, workload: Workload) -> str:
        ours = self.our_checks()
        for name in workload.checks:  # fast: each plan calls this for all queued Workloads
            if name in ours:
                return name
        return ""

    def our_checks(self) -> frozenset[str]:
        if self._our_checks[0] != self._manager.checks.change_count:
            self._our_checks = (
                self._manager.checks.change_count,
                our_checks(self._manager.checks.read_all_cached(read_check).values()),
            )
        return self._our_checks[1]

    def rival_checks_problem(self, workload: Workload | None) -> str:
        if workload is None:
            return ""
        checks = expected_checks(workload, self._manager.cluster_queue_of((workload.namespace, workload.queue)))
        controllers = {name: self._manager.check(name).controller for name in checks}
        return queue_layout.conflicting_checks(f"ClusterQueue of LocalQueue {workload.queue}", controllers)

    def layout_problems(self, check: str) -> list[str]:
        manager = self._manager
        queues = queue_layout.QueueLayout(
            manager.cluster_queues.read_all_cached(read_cluster_queue).values(),
            manager.local_queues.read_all_cached(read_local_queue).values(),
            {flavor.name: flavor for flavor in manager.flavors.read_all_cached(read_flavor).values()},
            {check.name: check.controller for check in manager.checks.read_all_cached(read_check).values()},
        )
        return queue_layout.problems(check, queues)

    def admin_objects(self) -> PolicyObjects:
        configs = self._manager.multikueue_configs
        return PolicyObjects(
            _by_name(self._manager.policies),
            list(self._manager.worker_clusters),
            _by_name(configs) if configs.synced else None,
        )

    def policy_of(self, check: str) -> tuple[ResolvedPolicy | None, str]:
        """The policy behind an AdmissionCheck, or why there is none.

        The result is cached: reading the objects of a hundred clusters takes milliseconds, and each reconcile and each
        queued gang needs it.
        """
        manager = self._manager
        stores = manager.checks, manager.policies, manager.worker_clusters, manager.multikueue_configs
        versions = (*(store.change_count for store in stores), manager.multikueue_configs.synced)
        if versions != self.read_versions:
            self.read_versions, self._policies_by_check, self._relayed_networks = versions, {}, {}
        if check not in self._policies_by_check:
            self._policies_by_check[check] = self._read_policy(check)
        return self._policies_by_check[check]

    def _read_policy(self, check: str) -> tuple[ResolvedPolicy | None, str]:
        try:
            return policy_of_check(self._manager.check(check), self.admin_objects()), ""
        except specs.InvalidSpec as error:
            return None, str(error)

    def clusters_of(self, chosen: ResolvedPolicy | None) -> list[Raw]:
        raws = (self._manager.worker_clusters.by_name(cluster) for cluster in (chosen.clusters if chosen else ()))
        return [raw for raw in raws if raw]

    def job_of(self, workload: Workload) -> JobObject:
        """A Workload's job; unknown while it is unobserved."""
        return self._manager.job_object(workload.job) if workload.job else UNKNOWN_JOB

    def relay_identity(self, workload: Workload, check: str, job: JobObject | None = None) -> str:
        """The identity of a gang's relayed network; empty if it has none.

        A started gang keeps what its head was started with; another one has a network if its policy has a relayed
        cluster. `job`: its job, if no store has it.
        """
        if (started_with := self.started_identity(workload, check)) is not None:
            return started_with
        is_relayed = self._relay_image(check) and not self._relay_conflict(workload, check, job)
        return relay_network.identity_of(workload.gang_uid or workload.name or _UNSUBMITTED) if is_relayed else ""

    def started_identity(self, workload: Workload, check: str) -> str | None:
        """The identity that a gang's head was started with, which may be empty; None: it was not started."""
        updates = self._started_updates(workload, check)
        return None if updates is None else relay_network.recorded_identity(updates)

    def started_key(self, workload: Workload, check: str) -> str:
        """The fingerprint of the key that a gang's head was started with; empty if it is not recorded.

        That of an elastic job never is: its templates keep the updates of its first start, also with another key.
        """
        return "" if workload.elastic else relay_network.recorded_key(self._started_updates(workload, check) or ())

    def relay_key(self) -> str:
        """The fingerprint of the relay's key; empty if there is none.

        One that was deleted counts on: the controller that knows it writes it again within seconds.
        """
        secret = self._manager.secrets.get((names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET))
        if secret is not None:
            self._relay_key = relay_keys.fingerprint_of(relay_keys.read_key(secret))
        return self._relay_key

    def relay_key_problem(self, workload: Workload, check: str) -> str:
        """Why the head of a started gang would refuse new workers, a fragment; empty if it would not."""
        head_key = self.started_key(workload, check)
        return outdated_network.key_problem(head_key, self.relay_key()) if head_key else ""

    def _started_updates(self, workload: Workload, check: str) -> tuple[Raw, ...] | None:
        """The podset updates that a gang was started with; None: it was not started."""
        slices = self._manager.workloads.by_index("/".join(workload.gang_key)) if workload.elastic else ()
        active = (each for each in map(self._manager.read_workload, slices) if not each.finished)
        for known in itertools.chain((workload,), active):
            if (state := known.checks.get(check)) and state.state == names.CHECK_READY:
                return state.updates
        return None

    def relay_problem(self, workload: Workload, check: str, job: JobObject | None = None) -> str:
        """Why a gang uses no cluster that is reached through the relay, a fragment; empty if it may."""
        started_with = self.started_identity(workload, check)
        if started_with or not self._relay_image(check):
            return ""
        reason = self._relay_conflict(workload, check, job) or (_UNPREPARED_HEAD if started_with is not None else "")
        return f"it is reached through the relay, and {reason}" if reason else ""

    def _relay_conflict(self, workload: Workload, check: str, job: JobObject | None) -> str:
        podsets = (*workload.podsets[:1], *self.remote_podsets(workload, check))
        conflict = relay_conflict.find_conflict(job or self.job_of(workload), podsets)
        return conflict or self.denied_relay_reason(workload.namespace)

    def denied_relay_reason(self, namespace: str) -> str:
        """Why no head can be prepared for the relay, a fragment; empty if none was denied lately."""
        text, until = self._relay_denials.get(namespace, ("", datetime.min.replace(tzinfo=UTC)))
        return text if self._manager.clock.now() < until else ""

    def denied_namespaces(self) -> list[str]:
        """The namespaces for which a head was denied lately."""
        return [namespace for namespace in self._relay_denials if self.denied_relay_reason(namespace)]

    def forget_relay_denial(self, namespace: str) -> None:
        self._relay_denials = {name: denial for name, denial in self._relay_denials.items() if name != namespace}

    def note_relay_denied(self, namespace: str, message: str) -> None:
        """Leave relayed clusters out for a namespace's jobs for a while: a quota may deny those of one namespace."""
        now = self._manager.clock.now()
        text = (
            f"the manager cluster denies what heads need for the relay ({clause(message)}): install the component "
            "relay there, or let the namespace have a Secret and a Service for each job"
        )
        recent = {name: problem for name, problem in self._relay_denials.items() if now < problem[1]}
        self._relay_denials = {**recent, namespace: (text, now + _RELAY_RETRY)}

    def _relay_image(self, check: str) -> str:
        """The sidecar's image of the first relayed cluster; empty if the policy has none."""
        networks = self.relayed_networks(check).values()
        return next((network.image for network in networks), "")

    def relay_of(self, workload: Workload, check: str) -> tuple[str, str]:
        """The identity of a gang's relayed network, and the image of sidecars in clusters that name none."""
        return self.relay_identity(workload, check), self._relay_image(check)

    def with_relay(self, workload: Workload, check: str, job: JobObject | None = None) -> Workload:
        """The Workload with what the relay adds to each worker; unchanged for a gang without a relayed network."""
        is_counted = any(relay_pod.is_counted(podset.template) for podset in workload.podsets)
        if is_counted or not self.relay_identity(workload, check, job):
            return workload
        image = self._relay_image(check)
        memo = self._manager.memo_of(workload)
        return memo.get_or_find((PolicyObserver, image), workload.podsets, lambda: _with_sidecars(workload, image))

    def relayed_networks(self, check: str) -> dict[str, specs.NetworkSpec]:
        """The relayed clusters of a check's policy; cached like the policy."""
        chosen, _ = self.policy_of(check)
        if check not in self._relayed_networks:
            networks = {key_of(raw)[1]: _network_of(raw) for raw in self.clusters_of(chosen)}
            self._relayed_networks[check] = {name: spec for name, spec in networks.items() if spec.is_relayed}
        return self._relayed_networks[check]

    def policy_name(self, check: str) -> str:
        """The DispatchPolicy's name, valid or not."""
        return self._manager.check(check).policy

    def dispatch_problem(self, workload: Workload | None, now: datetime) -> str:
        """A sentence why a gang cannot be dispatched now, whatever its policy says; else empty."""
        return self.rival_checks_problem(workload) or self.gate_problem(now) or self.record_problem()

    def record_problem(self) -> str:
        """A sentence why no job can be placed now: an older CRD would drop what its Placement says; else empty."""
        return crd_fields.record_problem(self._manager.crds.missing)

    def outdated_text(self) -> str:
        """A sentence on the CRDs that are older than the controller, or empty."""
        return crd_fields.outdated_text(self._manager.crds.missing)

    def gate_problem(self, now: datetime) -> str:
        manager = self._manager
        kinds = (
            (resources.GATE_POLICIES, manager.gate_policies),
            (resources.GATE_BINDINGS, manager.gate_bindings),
            (resources.GATE_WEBHOOKS, manager.gate_webhooks),
        )
        policies, bindings, webhooks = (
            {} if kind in manager.unreadable_kinds else _by_name(store) for kind, store in kinds
        )
        return gate.problem(policies, bindings, webhooks, gate_policy(), now)

    def remote_podsets(self, workload: Workload, check: str) -> list[PodSet]:
        """The worker groups to place: covered by the check, with workers."""
        return [podset for podset in self.covered_podsets(workload, check) if podset.count]

    def covered_podsets(self, workload: Workload, check: str) -> list[PodSet]:
        """The worker groups that the check covers (docs/upstream.md, "What a check covers"), even empty ones."""
        current = (
            self._manager.job_object(workload.job)
            if workload.job and workload.job.kind in names.RAY_KINDS
            else UNKNOWN_JOB
        )
        # A job with another uid was created again under the same name.
        job = current if workload.job and current.uid == workload.job.uid else UNKNOWN_JOB
        queue = self._manager.cluster_queue_of((workload.namespace, workload.queue))
        return covered_groups(workload, check, queue, job)


def _with_sidecars(workload: Workload, image: str) -> Workload:
    podsets = tuple(
        podset
        if podset.name == names.HEAD
        else replace(podset, template=relay_pod.counted_template(podset.template, image or _main_image(podset)))
        for podset in workload.podsets
    )
    return replace(workload, podsets=podsets)


def _main_image(podset: PodSet) -> str:
    """In place of the sidecar's image, which no cluster of the policy has any more; a dry run needs one."""
    containers = mapping_list(mapping_field(podset.template, "spec"), "containers")
    return text_field(containers[0], "image") if containers else ""


def _network_of(worker_cluster: Raw) -> specs.NetworkSpec:
    """The network of a WorkerCluster; that of a malformed one is flat, as no policy uses it."""
    try:
        return specs.parse_worker_cluster(worker_cluster).network
    except specs.InvalidSpec:
        return specs.NetworkSpec()


def _by_name(store: Store) -> dict[str, Raw]:
    return {key_of(raw)[1]: raw for raw in store}
