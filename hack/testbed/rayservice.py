"""A RayService as a user handles it: submit the sample, edit it, send it requests, delete it. And stock Kueue for it.

Everything is done with kubectl's verbs on the manager cluster. Requests come from a pod there, by the name that stays.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import kueueconfig
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE, released
from hack.testbed.reader import Raw
from hack.testbed.stage import added

SAMPLE = REPO / "manifests" / "samples" / "rayservice-place.yaml"
SECONDS = 300  # three Ray nodes, Serve on each, and probes that begin after ten seconds; on two busy cores
# Five requests a second, one after the other, each by its own connection; one line for each. Connections that are
# refused before the first answer are left out: kube-proxy may learn the endpoints of a ready Service a moment later.
_ASKER = """
import errno, json, sys, time, urllib.request
answered = False
while True:
    begun = time.time()
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
            said = {"code": answer.status, **json.load(answer)}
        answered = True
    except Exception as error:
        said = {"code": getattr(error, "code", 0), "error": repr(error)}
        code = getattr(getattr(error, "reason", None), "errno", None)
        said = said if answered or code != errno.ECONNREFUSED else None
    if said:
        print(json.dumps(said), flush=True)
    time.sleep(max(0.0, begun + 0.2 - time.time()))
"""
# Several requests at a time, each of which waits until it is answered; one line for each. A refused connection is tried
# once more: KubeRay labels the new head for the Service and switches the Service to it in one pass, and a Service whose
# only endpoint is the head has none until the EndpointSlice controller sees that label.
_LOAD = """
import errno, json, os, socket, sys, threading, time, urllib.request
def ask():
    refused = False
    while True:
        try:
            with urllib.request.urlopen(sys.argv[1], timeout=300) as answer:
                said = {"code": answer.status, **json.load(answer)}
            refused = False
        except Exception as error:
            time.sleep(1)
            code = getattr(getattr(error, "reason", None), "errno", None)
            refused = code == errno.ECONNREFUSED and not refused
            if refused or code == socket.EAI_AGAIN:
                continue  # nothing was asked of the service; EAI_AGAIN is a DNS that is out of breath
            said = {"code": getattr(error, "code", 0), "error": repr(error)}
        os.write(1, (json.dumps(said) + "\\n").encode())  # in one write, as there are several threads
threads = [threading.Thread(target=ask) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
"""


@contextmanager
def dispatched(fleet: Clusters) -> Iterator[None]:
    """The manager as docs/serving.md says: Kueue without its integration of RayServices, KubeRay held; restored in the
    end.
    """
    with ExitStack() as stack:
        stack.callback(kueueconfig.restart, [fleet.manager])
        stack.enter_context(kueueconfig.changed(fleet.manager, _without_services))
        kueueconfig.restart([fleet.manager])
        stack.enter_context(added(fleet.manager, "rayservice"))
        yield


@contextmanager
def led_straight(manager: Cluster) -> Iterator[None]:
    """With the right to write slices, which is revoked as docs/serving.md says: the revoker deletes what
    was written."""
    try:
        with added(manager, "rayservice-endpoints"):
            yield
    finally:
        ours = f"{names.SLICE_MANAGED_BY_LABEL}={names.SERVING_SLICES_MANAGER}"
        manager.kubectl("-n", NAMESPACE, "delete", "endpointslices", "-l", ours)


def _without_services(before: Raw) -> Raw:
    kept = [one for one in before["integrations"]["frameworks"] if one != names.RAY_SERVICE_FRAMEWORK]
    return {**before, "integrations": {**before["integrations"], "frameworks": kept}}


def of(ray_cluster: Raw, **spec: Any) -> Raw:
    """A RayService whose RayClusters are like this one, and which has nothing to serve; `spec` is what else it says."""
    body = {"serveConfigV2": "applications: []", "rayClusterConfig": ray_cluster["spec"], **spec}
    return {**ray_cluster, "kind": names.RAY_SERVICE, "spec": body}


@dataclass(frozen=True)
class RayService:
    """The sample RayService under another name, with one worker in each of two worker clusters."""

    fleet: Clusters
    name: str

    def apply(self, release: str, change: Callable[[Raw], None] = lambda _: None) -> None:
        """`kubectl apply` it; another release is an upgrade, and `change` may edit its RayCluster's spec."""
        service, code = yaml.safe_load_all(SAMPLE.read_text())
        service["metadata"]["name"] = code["metadata"]["name"] = self.name
        service["spec"]["rayClusterDeletionDelaySeconds"] = 10  # sooner than the default minute
        cluster = service["spec"]["rayClusterConfig"]
        (group,) = cluster["workerGroupSpecs"]
        for one in (cluster["headGroupSpec"], group):
            spec = one["template"]["spec"]
            spec["volumes"][0]["configMap"]["name"] = self.name
            env = {each["name"]: each for each in spec["containers"][0]["env"]}
            env["RELEASE"]["value"] = release
        group["template"]["spec"]["terminationGracePeriodSeconds"] = 20  # a third of the sample's
        cluster["workerGroupSpecs"] = [_in_zone(group, zone) for zone in self.fleet.workers]
        change(cluster)
        self.fleet.manager.apply(yaml.safe_dump_all([code, service]))

    def delete(self) -> None:
        """`kubectl delete` it, and wait until its workers have ended."""
        self.fleet.manager.delete("rayservice", self.name, wait=False)
        self.fleet.manager.delete("configmap", self.name, wait=False)
        wait(
            lambda: not self.ray_clusters() and released(self.fleet), 180, f"nothing of {self.name} is left", self.dump
        )

    def wait_until_ready(self) -> None:
        """Wait until KubeRay has an endpoint for it."""
        wait(
            lambda: condition(self.get(), "Ready").get("status") == "True", SECONDS, f"{self.name} is ready", self.dump
        )

    def get(self) -> Raw:
        return self.fleet.manager.get("rayservices", self.name)

    def ray_clusters(self) -> list[Raw]:
        """Its RayClusters, the oldest first."""
        found = self.fleet.manager.items("rayclusters", NAMESPACE, f"{names.RAY_ORIGIN_LABEL}={names.RAY_SERVICE}")
        found = [one for one in found if _owner(one) == self.name]
        return sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))

    def led(self, whose: str = "==") -> list[str]:
        """The addresses of its Service to which requests go, of our slices (==) or of Kubernetes' own (!=)."""
        of_service = f"{names.SERVICE_NAME_LABEL}={self.name}-serve-svc"
        selector = f"{of_service},{names.SLICE_MANAGED_BY_LABEL}{whose}{names.SERVING_SLICES_MANAGER}"
        slices = self.fleet.manager.items("endpointslices", NAMESPACE, selector)
        every = (each for one in slices for each in one.get("endpoints") or ())
        return [address for each in every if each["conditions"].get("ready") for address in each["addresses"]]

    def events(self) -> list[tuple[str, str]]:
        """Rayspan's events about it, by reason and message."""
        uid = (self.get().get("metadata") or {}).get("uid")
        found = (e for e in self.fleet.manager.items("events", NAMESPACE) if e["involvedObject"].get("uid") == uid)
        return [(e["reason"], e["message"]) for e in found if e["source"].get("component") == names.EVENT_SOURCE]

    def dump(self) -> str:
        """Diagnostics for when it does not go on."""
        seen = self.fleet.manager.kubectl("get", "rayservices,rayclusters,pods,placements,workloads", "-o", "wide")
        return f"{self.get().get('status')}\n{self.events()}\n{seen}"


def _owner(ray_cluster: Raw) -> str:
    owners = ray_cluster["metadata"].get("ownerReferences") or ()
    return next((str(one["name"]) for one in owners if one.get("controller")), "")


def _in_zone(group: Raw, zone: str) -> Raw:
    """One worker of a group that may run in one zone only."""
    template = {**group["template"], "metadata": {"annotations": {names.ZONE_ANNOTATION: zone}}}
    counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), 1)
    return {**group, **counts, "groupName": zone, "template": template}


@dataclass(frozen=True)
class Asker:
    """A pod in the manager that asks a RayService all the time, by its Service."""

    fleet: Clusters
    name: str

    def answers(self) -> list[dict[str, Any]]:
        """The answers until now, in order."""
        return [json.loads(line) for line in self.fleet.manager.log(self.name).splitlines() if line.startswith("{")]

    def wait(self, what: str, seen: Callable[[list[dict[str, Any]]], bool], seconds: float = SECONDS) -> None:
        """Wait until its answers say so; the last ones are told if they never do."""
        wait(lambda: seen(self.answers()), seconds, what, lambda: str(self.answers()[-20:]))

    def failed(self) -> list[dict[str, Any]]:
        return [one for one in self.answers() if one["code"] != 200]


@contextmanager
def started(fleet: Clusters, name: str, apply: Callable[[RayService], None]) -> Iterator[RayService]:
    """A RayService that is ready, on a manager as `dispatched` makes it; it is deleted in the end."""
    with dispatched(fleet):
        service = RayService(fleet, name)
        try:
            apply(service)
            service.wait_until_ready()
            yield service
        finally:
            service.delete()


@contextmanager
def asked(service: RayService) -> Iterator[Asker]:
    """Somebody asks a RayService that is ready, for a while."""
    with running(service, "asker", _ASKER) as name:
        yield Asker(service.fleet, name)


@contextmanager
def loaded(service: RayService, what: str, requests: int) -> Iterator[Asker]:
    """Several requests at a time for a while, from a pod that is called by `what`; each has five minutes."""
    with running(service, what, _LOAD, str(requests)) as name:
        yield Asker(service.fleet, name)


@contextmanager
def running(service: RayService, what: str, program: str, *words: str) -> Iterator[str]:
    """Run a Python program in a pod of the manager, with the address of a RayService and more words; yields the pod's
    name.
    """
    name, url = f"{service.name}-{what}", f"http://{service.name}-serve-svc:8000/"
    template = next(yaml.safe_load_all(SAMPLE.read_text()))["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]
    image = template["spec"]["containers"][0]["image"]
    command = ["python", "-u", "-c", program, url, *words]
    # Without a request it would get no CPU where Ray nodes start, and count its own lateness as the service's.
    container = {"name": what, "image": image, "command": command, "resources": {"requests": {"cpu": "300m"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}}
    service.fleet.manager.apply(yaml.safe_dump({**pod, "spec": {"containers": [container]}}))
    try:
        service.fleet.manager.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        yield name
    finally:
        service.fleet.manager.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
