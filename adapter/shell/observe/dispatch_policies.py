"""Which of our AdmissionChecks is a Workload under, which DispatchPolicy is behind it, and can what the admins wrote work?

Read from the manager's stores alone. It decides nothing, and does not say whether a job may go where a policy sends it.
"""

from datetime import datetime

from adapter import names
from adapter.admission import gate, queue_layout
from adapter.admission.policy import PolicyObjects, ResolvedPolicy, policy_of_check
from adapter.objects import specs
from adapter.objects.admissioncheck import covered_groups, expected_checks, our_checks, read_check
from adapter.objects.queues import read_cluster_queue, read_flavor, read_local_queue
from adapter.objects.rayjob import UNKNOWN_JOB
from adapter.objects.unstructured import Raw, key_of
from adapter.objects.workload import PodSet, Workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.store import Store


class PolicyObserver:
    """Reads AdmissionChecks, DispatchPolicies and what they refer to."""

    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self.read_versions: tuple[object, ...] = ()  # as of which changes the following was read
        self._policies_by_check: dict[str, tuple[ResolvedPolicy | None, str]] = {}  # by check
        self._our_checks: tuple[int, frozenset[str]] = (-1, frozenset())  # and as of which change of them

    def check_of(self, workload: Workload) -> str:
        """The name of our AdmissionCheck on a Workload, empty when it has none."""
        ours = self.our_checks()
        for name in workload.checks:  # a loop, for each plan asks this of all that queue
            if name in ours:
                return name
        return ""

    def our_checks(self) -> frozenset[str]:
        """The names of the AdmissionChecks that are ours, found once until a check changes."""
        if self._our_checks[0] != self._manager.checks.change_count:
            self._our_checks = (
                self._manager.checks.change_count,
                our_checks(self._manager.checks.read_all_cached(read_check).values()),
            )
        return self._our_checks[1]

    def rival_checks_problem(self, workload: Workload | None) -> str:
        """Why the checks of a Workload exclude each other, empty when they do not."""
        if workload is None:
            return ""
        checks = expected_checks(workload, self._manager.cluster_queue_of((workload.namespace, workload.queue)))
        controllers = {name: self._manager.check(name).controller for name in checks}
        return queue_layout.conflicting_checks(f"ClusterQueue of LocalQueue {workload.queue}", controllers)

    def layout_problems(self, check: str) -> list[str]:
        """What cannot work in the queues that list an AdmissionCheck."""
        manager = self._manager
        queues = queue_layout.QueueLayout(
            manager.cluster_queues.read_all_cached(read_cluster_queue).values(),
            manager.local_queues.read_all_cached(read_local_queue).values(),
            {flavor.name: flavor for flavor in manager.flavors.read_all_cached(read_flavor).values()},
            {check.name: check.controller for check in manager.checks.read_all_cached(read_check).values()},
        )
        return queue_layout.problems(check, queues)

    def admin_objects(self) -> PolicyObjects:
        """What admins have written that an AdmissionCheck may refer to."""
        configs = self._manager.multikueue_configs
        return PolicyObjects(
            _by_name(self._manager.policies),
            list(self._manager.worker_clusters),
            _by_name(configs) if configs.synced else None,
        )

    def policy_of(self, check: str) -> tuple[ResolvedPolicy | None, str]:
        """The policy behind an AdmissionCheck, or why there is none. Read once until something changes that it may refer to: to read
        those of a hundred clusters takes milliseconds, and each look and each gang in the queue asks."""
        manager = self._manager
        stores = manager.checks, manager.policies, manager.worker_clusters, manager.multikueue_configs
        at = (*(store.change_count for store in stores), manager.multikueue_configs.synced)
        if at != self.read_versions:
            self.read_versions, self._policies_by_check = at, {}
        if check not in self._policies_by_check:
            self._policies_by_check[check] = self._read_policy(check)
        return self._policies_by_check[check]

    def _read_policy(self, check: str) -> tuple[ResolvedPolicy | None, str]:
        try:
            return policy_of_check(self._manager.check(check), self.admin_objects()), ""
        except specs.InvalidSpec as error:
            return None, str(error)

    def clusters_of(self, chosen: ResolvedPolicy | None) -> list[Raw]:
        """The WorkerClusters that a policy names, as far as they are registered."""
        found = (self._manager.worker_clusters.by_name(cluster) for cluster in (chosen.clusters if chosen else ()))
        return [raw for raw in found if raw]

    def policy_name(self, check: str) -> str:
        """The DispatchPolicy that an AdmissionCheck names, whether or not it can be used."""
        return self._manager.check(check).policy

    def gate_problem(self, now: datetime) -> str:
        """Why worker pods would not be held, empty when they would."""
        manager = self._manager
        kinds = (
            (resources.GATE_POLICIES, manager.gate_policies),
            (resources.GATE_BINDINGS, manager.gate_bindings),
            (resources.GATE_WEBHOOKS, manager.gate_webhooks),
        )
        policies, bindings, webhooks = (
            {} if kind in manager.unreadable_kinds else _by_name(store) for kind, store in kinds
        )
        return gate.problem(policies, bindings, webhooks, now)

    def remote_podsets(self, workload: Workload, check: str) -> list[PodSet]:
        """The worker groups that the check covers and that have workers: what is to be placed."""
        return [podset for podset in self.covered_podsets(workload, check) if podset.count]

    def covered_podsets(self, workload: Workload, check: str) -> list[PodSet]:
        """The worker groups that the check covers (docs/upstream.md, "What a check covers"), also those of nobody."""
        found = (
            self._manager.job_object(workload.job)
            if workload.job and workload.job.kind in names.RAY_KINDS
            else UNKNOWN_JOB
        )
        job = (
            found if workload.job and found.uid == workload.job.uid else UNKNOWN_JOB
        )  # else one that was made anew under its name
        queue = self._manager.cluster_queue_of((workload.namespace, workload.queue))
        return covered_groups(workload, check, queue, job)


def _by_name(store: Store) -> dict[str, Raw]:
    return {key_of(raw)[1]: raw for raw in store}
