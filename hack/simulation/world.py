"""The world of one trial: clusters with their models, the network, the controller's replicas, and the jobs."""

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.membership import cluster_identity_of
from adapter.objects.unstructured import Raw, is_condition_true, label, meta
from adapter.shell.kube import resources
from adapter.shell.shipped_policies import gate_policy
from hack.simulation import kuberay, readiness, virtualtime
from hack.simulation.apiserver import ApiServer
from hack.simulation.kubelet import Kubelet, runs
from hack.simulation.kuberay import CHECK, NAMESPACE, QUEUE, KubeRay, ManagerKueue
from hack.simulation.kueue import WorkerKueue
from hack.simulation.ray import Head, RayNode
from hack.simulation.replica import MANAGER, Replica
from hack.simulation.trace import Trace
from hack.simulation.transport import Network

_HEADS_SECONDS = 5.0  # how often Ray's heads look at their nodes


@dataclass(frozen=True, slots=True)
class Shape:
    """What a seed decides of a world."""

    cpus: dict[str, int]  # of each worker cluster
    gang: str
    strategy: str
    on_share_lost: str
    clock: float = readiness.DEFAULT  # seconds of waitForPodsReady in each Kueue


@dataclass(slots=True)
class Member:
    """A worker cluster and those who work in it."""

    server: ApiServer
    kueue: WorkerKueue
    kubelet: Kubelet
    is_drained: bool = False  # or was a short time ago
    is_data_cut: bool = False  # the way between its pods and Ray's heads


class World:
    def __init__(self, loop: virtualtime.Loop, seed: int, shape: Shape, trace: Trace) -> None:
        self.loop, self.shape, self.trace = loop, shape, trace
        self.draw = random.Random(f"world-{seed}")
        self.network = Network(loop, random.Random(f"network-{seed}"))
        self.network.install()
        self.manager = ApiServer(MANAGER, loop, self.draw, trace.write)
        self.members: dict[str, Member] = {}
        self.heads: dict[str, Head] = {}  # by the uid of the head's pod
        self.deleted_by_hand: set[str] = set()  # uids of shares
        self.heads_answer_since = 0.0
        self.heads_busy_since: float | None = None  # since when their dashboards fail
        self.replicas = [Replica(name, trace, self.draw) for name in ("replica-0", "replica-1")]
        self.network.hosts[MANAGER] = self.manager
        self._fill_manager()
        for number, (name, cpus) in enumerate(shape.cpus.items()):
            self._add_member(name, number + 1, cpus)
        self.kubelet = Kubelet(self.manager, self.later, 0, lambda _: True)
        self.kubelet.on_ready = self._head_ready
        self.kubelet.start = (1.0, 6.0)
        self.kuberay = KubeRay(self.manager, self.later)
        self.manager.admit = self.kuberay.gate
        # A BestEffort gang with a part of its workers is never ready: the manager's Kueue stops it, as the docs say.
        clock = readiness.DEFAULT if shape.gang == "BestEffort" else shape.clock
        self.manager_kueue = ManagerKueue(self.manager, self.later, clock)
        self.manager.follow(self._pod_changed)
        loop.call_later(_HEADS_SECONDS, self._check_heads)

    def later(self, least: float, most: float, call: Callable[..., object], *args: object) -> None:
        """Call a function after a drawn time."""
        self.loop.call_later(self.draw.uniform(least, most), call, *args)

    def start(self) -> None:
        """Start both replicas."""
        for replica in self.replicas:
            self.later(0.0, 3.0, replica.start)

    def leader(self) -> Replica | None:
        return next((one for one in self.replicas if one.leads), None)

    # --- what admins wrote -----------------------------------------------------------------------------------------

    def _fill_manager(self) -> None:
        put, shape = self.manager.put, self.shape
        put(resources.NAMESPACES, {"metadata": {"name": "kube-system"}})
        parameters = {"apiGroup": names.DOMAIN, "kind": names.DISPATCH_POLICY_KIND, "name": "default"}
        check = {"controllerName": names.CONTROLLER_NAME, "parameters": parameters}
        put(resources.ADMISSION_CHECKS, {"metadata": {"name": CHECK}, "spec": check})
        policy: dict[str, Any] = {"clusters": {"names": [*shape.cpus]}, "gang": shape.gang, "strategy": shape.strategy}
        policy |= {"minWorkers": 1} if shape.gang == "BestEffort" else {}
        policy |= {"onShareLost": shape.on_share_lost} if shape.on_share_lost else {}
        put(resources.DISPATCH_POLICIES, {"metadata": {"name": "default"}, "spec": policy})
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
        put(resources.CLUSTER_QUEUES, {"metadata": {"name": "all"}, "spec": checks})
        put(resources.LOCAL_QUEUES, {"metadata": {"name": QUEUE, "namespace": NAMESPACE},
                                     "spec": {"clusterQueue": "all"}})  # fmt: skip
        put(resources.FLAVORS, {"metadata": {"name": "default"}, "spec": {}})
        old = "2025-12-31T00:00:00Z"
        for resource, spec in ((resources.GATE_POLICIES, gate_policy().policy),
                               (resources.GATE_BINDINGS, gate_policy().binding)):  # fmt: skip
            put(resource, {"metadata": {"name": names.GATE_POLICY, "creationTimestamp": old}, "spec": spec})

    def _add_member(self, name: str, number: int, cpus: int) -> None:
        server = ApiServer(name, self.loop, self.draw, self.trace.write)
        server.put(resources.NAMESPACES, {"metadata": {"name": "kube-system"}})
        server.put(resources.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        condition = [{"type": "Ready", "status": "True"}]
        room = {"cpu": "192", "memory": "2Ti", "pods": "110"}
        server.put(resources.NODES, {"metadata": {"name": "node-0"}, "spec": {},
                                     "status": {"allocatable": room, "conditions": condition}})  # fmt: skip
        kueue = WorkerKueue(server, self.later, cpus, self.shape.clock)
        server.admit = kueue.admit
        kubelet = Kubelet(server, self.later, number, lambda pod: self._may_join(name, pod))
        kubelet.on_ready = lambda pod: self._join(name, pod)
        self.members[name] = Member(server, kueue, kubelet)
        self.network.hosts[name] = server
        self.write_login(name, "t")
        spec = {
            "source": {"kubeConfig": {"secretRef": {"name": name}}}, "podsReadyTimeout": f"{self.shape.clock:.0f}s",
        }  # fmt: skip
        self.manager.put(resources.WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})

    def write_login(self, name: str, token: str) -> None:
        """An admin writes the Secret with a cluster's kubeconfig."""
        login = base64.b64encode(_kubeconfig(name, token).encode()).decode()
        self.manager.put(resources.SECRETS, {"metadata": {"name": name, "namespace": names.SYSTEM_NAMESPACE},
                                             "data": {names.KUBECONFIG_KEY: login}}, "admin")  # fmt: skip

    @property
    def manager_id(self) -> str:
        found = self.manager.find(resources.NAMESPACES, "", "kube-system")
        return cluster_identity_of(found or {})

    # --- jobs ------------------------------------------------------------------------------------------------------

    def submit(self, name: str, workers: int) -> None:
        """A user submits a RayCluster."""
        self.manager.put(resources.RAY_CLUSTERS, kuberay.ray_cluster(name, workers), "user")

    def end(self, name: str) -> None:
        """A user deletes it."""
        if found := self.manager.find(resources.RAY_CLUSTERS, NAMESPACE, name):
            self.manager.remove(resources.RAY_CLUSTERS, found, "user")

    def manager_pods(self) -> dict[str, dict[str, Any]]:
        """The workers' pods in the manager, by uid."""
        pods = self.manager.all(resources.PODS)
        return {meta(pod)["uid"]: pod for pod in pods if label(pod, names.PLACEMENT_LABEL)}

    # --- Ray -------------------------------------------------------------------------------------------------------

    def head_of(self, ray_cluster: str) -> Head | None:
        """The head that lives now, by the name of the RayCluster."""
        for pod in self.manager.all(resources.PODS):
            is_head = label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD
            if is_head and label(pod, names.RAY_GCS_CLUSTER_LABEL) == ray_cluster and meta(pod)["uid"] in self.heads:
                return self.heads[meta(pod)["uid"]]
        return None

    def _head_ready(self, pod: Raw) -> None:
        head = Head(pod["status"]["podIP"], lambda: self.heads_busy_since is not None)
        head = self.heads.setdefault(meta(pod)["uid"], head)
        self.network.hosts[head.address] = head

    def _pod_changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if path == resources.PODS.path() and after is None and before and meta(before)["uid"] in self.heads:
            head = self.heads.pop(meta(before)["uid"])
            self.network.hosts.pop(head.address, None)
            for member in self.members.values():  # their nodes end without it
                for pod in member.kubelet.workers():
                    if any(node.uid == meta(pod)["uid"] for node in head.nodes.values()):
                        member.kubelet.unready(pod)

    def _may_join(self, cluster: str, pod: Raw) -> bool:
        head = self.head_of(label(pod, names.REMOTE_RAY_CLUSTER_LABEL))
        wanted = (meta(pod).get("annotations") or {}).get(names.HEAD_IP_ANNOTATION)
        return head is not None and head.address == wanted and not self.members[cluster].is_data_cut

    def _join(self, cluster: str, pod: Raw) -> None:
        if head := self.head_of(label(pod, names.REMOTE_RAY_CLUSTER_LABEL)):
            head.join(pod, cluster)

    def _check_heads(self) -> None:
        for head in list(self.heads.values()):
            head.check(self.loop.time(), self._answers, self._given_up)
        self.loop.call_later(_HEADS_SECONDS, self._check_heads)

    def _pod_of(self, node: RayNode) -> dict[str, Any] | None:
        pods = self.members[node.cluster].server.all(resources.PODS)
        return next((pod for pod in pods if meta(pod)["uid"] == node.uid), None)

    def _answers(self, node: RayNode) -> bool:
        pod = self._pod_of(node)
        return (
            pod is not None and runs(pod) and is_condition_true(pod, "Ready")
            and not self.members[node.cluster].is_data_cut
        )  # fmt: skip

    def _given_up(self, node: RayNode) -> None:
        if pod := self._pod_of(node):
            self.members[node.cluster].kubelet.unready(pod)  # its raylet ends, and its container starts again


def _kubeconfig(name: str, token: str) -> str:
    return (
        f"{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://{name}'}}}}],"
        f" users: [{{name: u, user: {{token: {token}}}}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}]}"
    )
