"""Sets up MultiKueue for a test: its objects, and stock Kueue's configuration; all is restored afterwards."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed import install, kueueconfig
from hack.testbed.auditlog import WRITES
from hack.testbed.clusters import Cluster, Clusters, condition
from hack.testbed.reader import Raw

ACCOUNT = "it-multikueue"
USER = f"system:serviceaccount:{names.KUEUE_NAMESPACE}:{ACCOUNT}"
CHECK_CONTROLLER = "kueue.x-k8s.io/multikueue"
ORIGIN_LABEL = "kueue.x-k8s.io/multikueue-origin"
# MultiKueue watches every kind of job that the manager's Kueue integrates in every worker cluster, and calls a cluster
# without one of them inactive. So these and no others, and KubeRay's CRDs (not KubeRay) in the workers.
FRAMEWORKS = ("batch/job", "pod", "ray.io/rayjob", "ray.io/raycluster")
RAY_DEFINITIONS = ("rayclusters.ray.io", "rayjobs.ray.io")
# What upstream's own tests give its account (kueue: test/util/multikueue.go).
_ALL = ["create", "update", "patch", "delete", "get", "list", "watch"]
_RULES = [
    {"apiGroups": [names.KUEUE_DOMAIN], "resources": ["workloads"], "verbs": _ALL},
    {"apiGroups": [names.KUEUE_DOMAIN], "resources": ["workloads/status"], "verbs": ["get", "patch", "update"]},
    {"apiGroups": [names.KUEUE_DOMAIN], "resources": ["clusterqueues", "localqueues"],
        "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _ALL},
    {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": _ALL},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]},
    {"apiGroups": ["ray.io"], "resources": ["rayjobs", "rayclusters"], "verbs": _ALL},
    {"apiGroups": ["ray.io"], "resources": ["rayjobs/status", "rayclusters/status"], "verbs": ["get"]},
]  # fmt: skip


@dataclass(frozen=True)
class Write:
    """One write that an API server has let through."""

    agent: str
    verb: str
    resource: str
    name: str


class Audit:
    """The lab's audit log of a cluster, from the moment on in which this is made."""

    def __init__(self, cluster: Cluster) -> None:
        self.path = cluster.kubeconfig.with_name("audit.log")
        found = self.path.stat()
        self._file, self._at = found.st_ino, found.st_size

    def lines(self, user: str) -> list[Raw]:
        """The answers to that user since then; raises LabError where the log was rotated meanwhile."""
        with self.path.open("rb") as log:
            if self.path.stat().st_ino != self._file:
                raise LabError(f"{self.path} was rotated, so what was written before is not seen: run it again.")
            log.seek(self._at)
            whole = [line for line in log.read().decode().splitlines(keepends=True) if line.endswith("\n")]
        found = [json.loads(line) for line in whole if user in line]
        return [line for line in found if line["user"]["username"] == user]

    def writes(self, user: str, namespace: str) -> list[Write]:
        """The writes of one user in one namespace, events and dry runs left out."""
        return [
            Write(line["userAgent"], line["verb"], line["objectRef"]["resource"], line["objectRef"].get("name") or "")
            for line in self.lines(user)
            if line["verb"] in WRITES
            and (line.get("objectRef") or {}).get("namespace") == namespace
            and line["objectRef"]["resource"] != "events"
            and line["responseStatus"]["code"] < 400
            and "dryRun=" not in line["requestURI"]
        ]

    def sweeps(self) -> int:
        """How often MultiKueue's garbage collector has looked for what it made."""
        listed = (line for line in self.lines(USER) if line["verb"] == "list")
        return sum("multikueue-origin" in line["requestURI"] and "workloads" in line["requestURI"] for line in listed)


def cluster(name: str, secret: str) -> Raw:
    """A MultiKueueCluster with its kubeconfig in a Secret."""
    spec = {"clusterSource": {"kubeConfig": {"location": secret, "locationType": "Secret"}}}
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "MultiKueueCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def config(name: str, *clusters: str) -> Raw:
    """A MultiKueueConfig."""
    spec = {"clusters": list(clusters)}
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": "MultiKueueConfig", "metadata": {"name": name}, "spec": spec}


def put_secret(manager: Cluster, name: str, kubeconfig: str) -> None:
    """Put a kubeconfig where MultiKueue reads it. By the server, so that no annotation repeats the token."""
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": names.KUEUE_NAMESPACE}}
    how = ("--server-side", "--force-conflicts", "--field-manager=rayspan-test", "-f", "-")
    manager.kubectl("apply", *how, input=json.dumps({**body, "data": data}))


@contextmanager
def account(fleet: Clusters, name: str) -> Iterator[str]:
    """MultiKueue's account in a worker cluster, and its kubeconfig."""
    worker = fleet.workers[name]
    metadata = {"name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": names.KUEUE_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
    api = "rbac.authorization.k8s.io/v1"
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": names.KUEUE_NAMESPACE}},
        {"apiVersion": api, "kind": "ClusterRole", "metadata": metadata, "rules": _RULES},
        {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    ]
    text = yaml.safe_dump_all(objects)
    worker.apply(text)
    try:
        config = yaml.safe_load(install.worker_kubeconfig(fleet.manager, name))
        token = worker.kubectl("-n", names.KUEUE_NAMESPACE, "create", "token", ACCOUNT, "--duration=1h").strip()
        config["users"][0]["user"] = {"token": token}
        yield yaml.safe_dump(config)
    finally:
        worker.kubectl("delete", "-f", "-", "--ignore-not-found", input=text)


@contextmanager
def working(fleet: Clusters) -> Iterator[None]:
    """Stock Kueue in all clusters, set so that MultiKueue works; as it was before when this ends."""
    with ExitStack() as stack:
        stack.callback(kueueconfig.restart, fleet.all)
        for worker in fleet.workers.values():
            stack.enter_context(ray_known(fleet.manager, worker))
        stack.enter_context(kueueconfig.changed(fleet.manager, _config))
        kueueconfig.restart([fleet.manager])
        yield


@contextmanager
def ray_known(manager: Cluster, worker: Cluster) -> Iterator[None]:
    """Within, a worker cluster knows KubeRay's kinds as the manager does, without KubeRay."""
    worker.kubectl("apply", "--server-side", "-f", "-", input=_definitions(manager))
    try:
        yield
    finally:
        worker.kubectl("delete", "crd", *RAY_DEFINITIONS, "--ignore-not-found")


def _config(before: Raw) -> Raw:
    integrations = {**before["integrations"], "frameworks": list(FRAMEWORKS)}
    return {**before, "integrations": integrations, "multiKueue": {"gcInterval": "5s"}}  # a minute by default


def _definitions(manager: Cluster) -> str:
    found = [manager.get("crd", name) for name in RAY_DEFINITIONS]
    start = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return yaml.safe_dump_all(
        [{**start, "metadata": {"name": crd["metadata"]["name"]}, "spec": crd["spec"]} for crd in found]
    )


def active(manager: Cluster, kind: str, name: str) -> bool:
    """Whether Kueue calls an object of its own active."""
    return bool(condition(manager.get(kind, name), names.ACTIVE).get("status") == "True")
