"""The fleet of the bench: a manager with gangs that run or start, over worker clusters with their remote pods."""

import base64
import functools
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from adapter import names
from adapter.membership import cluster_identity_of
from adapter.objects.unstructured import Raw
from adapter.shell.kube import resources
from adapter.shell.shipped_policies import gate_policy
from hack.bench import plannerinput
from hack.bench.fleetapi import Cluster
from hack.bench.fleetgang import CHECK, NAMESPACE, QUEUE, Gang, about, worker_cluster

MANAGER = "manager"
CPUS = 100_000  # of a worker cluster's queue: no gang waits for them unless they are set as used
_QUOTA = {"cpu": CPUS, "memory": f"{4 * CPUS}Gi"}
_GATE, _GATE_BINDING = (
    {"metadata": {"name": names.GATE_POLICY}, "spec": spec} for spec in (gate_policy().policy, gate_policy().binding)
)


@dataclass(frozen=True, slots=True)
class Size:
    """How many worker pods, in gangs of how many, over how many worker clusters."""

    pods: int
    clusters: int
    gang: int
    across: int = 0  # clusters that each gang spans; 0: all
    # Whether templates list the slots of their pods. They list none for a gang in more shares than are listed.
    listed: bool = True
    selector: bool = False  # whether the policy chooses clusters by a label

    @property
    def gangs(self) -> list[int]:
        """The workers of each gang."""
        whole, rest = divmod(self.pods, self.gang)
        return [self.gang] * whole + ([rest] if rest else [])

    @property
    def names(self) -> list[str]:
        """The names of the worker clusters."""
        return [f"cluster-{number:03}" for number in range(self.clusters)]

    def over(self, gang: int) -> list[str]:
        """The worker clusters that a gang is over: each gang begins behind the one before it."""
        many = min(self.across or self.clusters, self.clusters)
        return [self.names[(gang * many + place) % self.clusters] for place in range(many)]


def fill(size: Size, clusters: dict[str, Cluster], url: str, fresh: int = 0) -> list[Gang]:
    """Fill all API servers with what exists before the first worker.

    Returns the placed gangs, and last a gang of so many workers that comes on top, if any.
    """
    manager = clusters[MANAGER]
    of_manager = {"metadata": {"name": "kube-system", "uid": MANAGER}}
    manager.put(resources.NAMESPACES, of_manager)
    workers = [*size.gangs, *([fresh] if fresh else [])]
    gangs = [
        Gang(number, many, size.over(number), cluster_identity_of(of_manager), listed=size.listed)
        for number, many in enumerate(workers)
    ]
    for resource, raw in _rules(size, url):
        manager.put(resource, raw)
    for gang in gangs:
        for resource, raw in gang.of_manager():
            manager.put(resource, raw)
    for name in size.names:
        _fill_worker(clusters[name], [gang for gang in gangs if name in gang.counts])
    return gangs


def kubeconfig(url: str, cluster: str) -> str:
    """How an API server is reached."""
    named = {"name": cluster, "cluster": {"server": f"{url}/{cluster}", "certificate-authority-data": _authority()}}
    context = {"name": cluster, "context": {"cluster": cluster, "user": cluster}}
    user = {"name": cluster, "user": {"token": "nobody-asks-for-it"}}
    whole = {"clusters": [named], "contexts": [context], "users": [user], "current-context": cluster}
    return json.dumps({"apiVersion": "v1", "kind": "Config", **whole})


@functools.cache
def _authority() -> str:
    """A CA that the machine trusts: a kubeconfig brings its own CA, and each client would load all of the system's
    otherwise.
    """
    first, *_ = ssl.create_default_context().get_ca_certs(binary_form=True)
    return base64.b64encode(ssl.DER_cert_to_PEM_cert(first).encode()).decode()


def _rules(size: Size, url: str) -> Iterator[tuple[resources.Resource, Raw]]:
    """The objects that admins write in the manager."""
    parameters = {"apiGroup": names.DOMAIN, "kind": names.DISPATCH_POLICY_KIND, "name": "default"}
    check = {"controllerName": names.CONTROLLER_NAME, "parameters": parameters}
    chosen: Raw = {"selector": {"matchLabels": {"kind": "worker"}}} if size.selector else {"names": size.names}
    yield resources.ADMISSION_CHECKS, {"metadata": {"name": CHECK, "uid": CHECK}, "spec": check}
    yield resources.DISPATCH_POLICIES, {"metadata": {"name": "default", "uid": "policy"}, "spec": {"clusters": chosen}}
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
    yield resources.CLUSTER_QUEUES, {"metadata": {"name": "all", "uid": "queue"}, "spec": checks}
    yield resources.LOCAL_QUEUES, {"metadata": about(QUEUE), "spec": {"clusterQueue": "all"}}
    yield resources.GATE_POLICIES, _GATE
    yield resources.GATE_BINDINGS, _GATE_BINDING
    for name in size.names:
        login = base64.b64encode(kubeconfig(url, name).encode()).decode()
        told = {"name": name, "namespace": names.SYSTEM_NAMESPACE, "uid": f"secret-{name}"}
        yield resources.SECRETS, {"metadata": told, "data": {names.KUBECONFIG_KEY: login}}
        yield resources.WORKER_CLUSTERS, worker_cluster(name, name)


def queue(used: int) -> Raw:
    """The ClusterQueue of a worker cluster with so many CPUs in use."""
    asked = [{"name": name, "nominalQuota": str(most)} for name, most in _QUOTA.items()]
    groups = [{"coveredResources": [*_QUOTA], "flavors": [{"name": "default", "resources": asked}]}]
    held = [{"name": "default", "resources": [{"name": "cpu", "total": str(used)}]}]
    return {
        "metadata": {"name": "all", "uid": "queue"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        "status": {"flavorsReservation": held},
    }


def _fill_worker(cluster: Cluster, gangs: list[Gang]) -> None:
    cluster.put(resources.NAMESPACES, {"metadata": {"name": "kube-system", "uid": cluster.name}})
    cluster.put(resources.NAMESPACES, {"metadata": {"name": NAMESPACE, "uid": "namespace"}})
    cluster.put(resources.CLUSTER_QUEUES, queue(0))
    cluster.put(resources.FLAVORS, {"metadata": {"name": "default", "uid": "flavor"}, "spec": {}})
    cluster.put(resources.LOCAL_QUEUES, {"metadata": about(QUEUE), "spec": {"clusterQueue": "all"}})
    for number in range(4):
        cluster.put(resources.NODES, plannerinput.node(number))
    for gang in gangs:
        share = gang.share(cluster.name)
        cluster.put(resources.WORKLOADS, share)
        owner = share["metadata"]["ownerReferences"][0]
        told = {**share["metadata"], "uid": owner["uid"], "ownerReferences": []}
        cluster.put(resources.CONFIG_MAPS, {"metadata": told})
