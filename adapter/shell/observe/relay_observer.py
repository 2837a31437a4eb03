"""Finds the running jobs with a relayed network, and what of them an administrator must know."""

from collections import defaultdict
from collections.abc import Container, Mapping

from adapter import names
from adapter.objects.relay_currency import RelayCurrency
from adapter.objects.specs import is_relay_address
from adapter.objects.unstructured import Key, Raw, annotation, condition, key_of, label, uid_of
from adapter.objects.worker_pod import has_ended, is_deleting
from adapter.objects.workload import Workload
from adapter.relay.outdated_network import relay_currency
from adapter.relay.relay_network import RelayNetwork, identity_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.supervise import contain_errors, read_each


class RelayObserver:
    def __init__(self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver) -> None:
        self._manager, self._fleet, self._policies = manager, fleet, policies
        self._used: tuple[int, dict[str, Workload]] = -1, {}  # the store version, and the gangs

    @property
    def has_networks(self) -> bool:
        """Whether the manager cluster is read, and a network was ever made in it. Its key may be lost since."""
        manager = self._manager
        key = manager.secrets.get((names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET))
        return not manager.not_ready_reason and (
            key is not None or any(label(head, names.RELAY_LABEL) for head in manager.heads)
        )

    def used_identities(self) -> dict[str, Workload]:
        """The gangs with quota by their identities."""
        if self._used[0] != self._manager.workloads.change_count:
            workloads = read_each("relay", self._manager.workloads, self._manager.read_workload)
            used = (each for _, each in workloads if each.holds_quota and not each.finished)
            self._used = self._manager.workloads.change_count, {identity_of(each.gang_uid): each for each in used}
        return self._used[1]

    def started_gangs(self) -> dict[RelayNetwork, Workload]:
        """The gangs whose head was started with a network."""
        started = {}
        for identity, gang in self.used_identities().items():
            with contain_errors("relay", (gang.namespace, gang.name)):
                if identity and self._policies.started_identity(gang, self._policies.check_of(gang)) == identity:
                    started[RelayNetwork(identity, gang.namespace)] = gang
        return started

    def head_key(self, gang: Workload) -> str:
        """The fingerprint of the key that a gang's head was started with."""
        return self._policies.started_key(gang, self._policies.check_of(gang))

    def currency_in(self, cluster: str) -> RelayCurrency | None:
        """What the condition of a WorkerCluster says; None if it has none, or while the cluster is unreachable."""
        cache = self._fleet.reachable().get(cluster)
        if cache is None or not self._is_concerned(cache):
            return None
        started = self.started_gangs() if self.has_networks else {}
        workers: defaultdict[str, list[Raw]] = defaultdict(list)
        for network, pod in self.running_workers(cache, started).values():
            workers[_job_name(started[network])].append(pod)
        return relay_currency(
            cache.spec.network.address,
            self._policies.relay_key(),
            {_job_name(gang): self.head_key(gang) for gang in started.values() if self._may_use(gang, cluster)},
            workers,
        )

    def running_workers(
        self, cache: WorkerClusterCache, networks: Container[RelayNetwork]
    ) -> dict[Key, tuple[RelayNetwork, Raw]]:
        """The remote pods of networks that run workers."""
        nodes = nodes_by_network(cache, networks)
        pods = ((network, pod) for network, own in nodes.items() for pod in own if self.runs_worker(pod))
        return {key_of(pod): (network, pod) for network, pod in pods}

    def runs_worker(self, pod: Raw) -> bool:
        """Whether a remote pod is a worker's that runs, and shows what its Secret was made for.

        A pod with our labels that no manager pod stands for is its user's.
        """
        manager_pod = self._manager.pods.get(key_of(pod)) or {}
        is_ours = uid_of(manager_pod) == label(pod, names.POD_UID_LABEL) != ""
        is_ending = is_deleting(pod) or has_ended(pod)
        return is_ours and not is_ending and is_relay_address(annotation(pod, names.RELAY_ADDRESS_ANNOTATION))

    def _is_concerned(self, cache: WorkerClusterCache) -> bool:
        """Whether a cluster is relayed, has workers of relayed jobs, or had some when its condition was written."""
        raw = self._manager.worker_clusters.by_name(cache.name) or {}
        return (
            cache.spec.network.is_relayed
            or bool(condition(raw, names.RELAY_CURRENT))
            or (self.has_networks and any(label(pod, names.RELAY_LABEL) for pod in cache.pods))
        )

    def _may_use(self, gang: Workload, cluster: str) -> bool:
        policy, _ = self._policies.policy_of(self._policies.check_of(gang))
        return policy is not None and cluster in policy.clusters


def nodes_by_network(cache: WorkerClusterCache, networks: Container[RelayNetwork]) -> Mapping[RelayNetwork, list[Raw]]:
    """The remote pods of networks in a cluster; a pod's label is its user's, so others are no networks."""
    nodes: defaultdict[RelayNetwork, list[Raw]] = defaultdict(list)
    for pod in cache.pods:
        network = RelayNetwork(label(pod, names.RELAY_LABEL), key_of(pod)[0])
        if network in networks:
            nodes[network].append(pod)
    return nodes


def _job_name(gang: Workload) -> str:
    return f"{gang.job.kind} {gang.namespace}/{gang.job.name}" if gang.job else f"{gang.namespace}/{gang.name}"
