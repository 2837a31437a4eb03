"""A RayCluster without a job, as a user handles it: create it, read its pods, query Ray on its head, delete it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed import rayspec
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, SAMPLE, released
from hack.testbed.reader import Raw

PATIENCE = 180  # seconds: the promise to the owner of a RayCluster when its head is restarted
_ALIVE = (
    "import json, ray; ray.init(logging_level='ERROR'); "
    "print(json.dumps([n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']]))"
)


@dataclass(frozen=True)
class RayCluster:
    """The RayCluster of the sample RayJob, renamed, without the program, with a readiness probe every second."""

    fleet: Clusters
    name: str
    workers: int = 4

    def create(self, change: Callable[[Raw], None] = lambda _: None) -> None:
        """`kubectl apply` it; `change` may do to it what it likes."""
        rayjob = next(o for o in yaml.safe_load_all(SAMPLE.read_text()) if o["kind"] == "RayJob")
        spec = rayjob["spec"]["rayClusterSpec"]
        template = spec["headGroupSpec"]["template"]["spec"]
        template.pop("volumes")
        template["containers"][0].pop("volumeMounts")
        rayspec.soon_ready(spec)
        group = spec["workerGroupSpecs"][0]
        group["replicas"] = group["minReplicas"] = group["maxReplicas"] = self.workers
        metadata = {"name": self.name, "namespace": NAMESPACE, "labels": rayjob["metadata"]["labels"]}
        made = {"apiVersion": rayjob["apiVersion"], "kind": "RayCluster", "metadata": metadata, "spec": spec}
        change(made)
        self.fleet.manager.apply(yaml.safe_dump(made))

    def delete(self) -> None:
        """`kubectl delete` it, and wait until no worker is left: 60 s, as promised to its owner, and as long for the
        pods' end.
        """
        self.fleet.manager.delete("raycluster", self.name, wait=False)
        wait(lambda: not self.pods("worker"), 60, "its workers are gone")
        wait(lambda: released(self.fleet), 60, "its quota is free again")

    def wait_until_joined(self) -> None:
        """Wait until all run, and are one to Ray, for the first time."""
        wait(self.joined, JOB_SECONDS, "all run and joined", self.dump)

    def wait_for_another_head(self, than: Raw) -> Raw:
        """Wait until another head runs, and all have joined it; returns its pod."""

        def found() -> Raw:
            head = self.head()
            return head if head and head["metadata"]["uid"] != than["metadata"]["uid"] and self.joined() else {}

        return wait(found, PATIENCE, "all joined another head", self.dump)

    def joined(self) -> bool:
        """Whether all are ready, and Ray's head knows itself and all workers, and no other node."""
        head, workers = self.head(), self.pods("worker")
        if not head or len(workers) != self.workers or len(self.ready("worker")) != self.workers:
            return False
        try:
            alive = self.ask(_ALIVE)
        except LabError:  # it is about to go, or does not answer yet
            return False
        return sorted(alive) == sorted(pod["status"]["podIP"] for pod in (head, *workers))

    def ask(self, program: str, *words: str) -> Any:
        """The JSON list that a Python program prints on the head, None if it prints none.

        Raises LabError when no head answers. Ray's own lines between, of lost nodes for instance, are skipped.
        """
        head = self.head()
        if not head:
            raise LabError(f"{self.name} has no head that is ready.")
        call = ("exec", head["metadata"]["name"], "-c", "ray-head", "--", "python", "-c", program, *words)
        lists = [line for line in self.fleet.manager.kubectl(*call).splitlines() if line.startswith("[")]
        return json.loads(lists[-1]) if lists else None

    def head(self) -> Raw:
        """The head's pod once it is ready, {} while there is none."""
        found = self.ready("head")
        return found[0] if len(found) == 1 else {}

    def ready(self, kind: str) -> list[Raw]:
        return [pod for pod in self.pods(kind) if condition(pod, "Ready").get("status") == "True"]

    def pods(self, kind: str) -> list[Raw]:
        """Its pods of a kind, head or worker, in the manager."""
        labels = f"{names.RAY_NODE_TYPE_LABEL}={kind},{names.RAY_GCS_CLUSTER_LABEL}={self.name}"
        return self.fleet.manager.items("pods", NAMESPACE, labels)

    def copies(self) -> dict[str, Raw]:
        """Its pods in the worker clusters, by the uid of the manager's pod that each is the copy of."""
        return {
            copy["metadata"]["labels"][names.POD_UID_LABEL]: copy
            for worker in self.fleet.workers.values()
            for copy in worker.items(
                "pods", NAMESPACE, f"{names.MANAGER_LABEL},{names.REMOTE_RAY_CLUSTER_LABEL}={self.name}"
            )
        }

    def dump(self) -> str:
        """Diagnostics for when it does not go on."""
        return "\n".join([self.fleet.manager.kubectl("get", "pods,placements", "-o", "wide"), *self._last_words()])

    def _last_words(self) -> Iterator[str]:
        """The logs of containers before their restarts."""
        for name, worker in self.fleet.workers.items():
            for copy in worker.items("pods", NAMESPACE, names.MANAGER_LABEL):
                if any(each["restartCount"] for each in copy["status"].get("containerStatuses") or ()):
                    pod = copy["metadata"]["name"]
                    yield f"{name}/{pod}:\n" + worker.kubectl(
                        "logs", pod, "-c", "ray-worker", "--previous", "--tail=15"
                    )
