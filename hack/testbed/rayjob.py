"""A RayJob as a user handles it: submit the sample, read its state and output, delete it.

Everything is done with kubectl's verbs on the manager cluster; the worker clusters are only read.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import rayspec
from hack.testbed.clusters import Clusters, wait
from hack.testbed.reader import Raw

SAMPLE = REPO / "manifests" / "samples" / "rayjob-pi.yaml"
ELASTIC = REPO / "manifests" / "samples" / "rayjob-elastic.yaml"
ZONES = REPO / "manifests" / "samples" / "rayjob-zones.yaml"
NAMESPACE = "default"
QUEUE = "ray"
# A job of five Ray nodes takes 40 s on two idle cores; CI's may be busy.
JOB_SECONDS = 240
LOG_SECONDS = 30  # the submitter asks the head for log lines about once a second


class Job:
    """The sample RayJob, renamed; `sample`: another one.

    `apart`: no two workers in one worker cluster, with a readiness probe every second. `namespace`: one that is open
    in every cluster.
    """

    def __init__(
        self,
        fleet: Clusters,
        name: str,
        workers: int = 4,
        *,
        apart: bool = False,
        sample: Path = SAMPLE,
        namespace: str = NAMESPACE,
    ) -> None:
        self.fleet, self.name, self.workers, self._apart, self._sample = fleet, name, workers, apart, sample
        self.manager, self.namespace = fleet.manager, namespace

    def submit(
        self, program: str = "", change: Callable[[Raw], None] = lambda _: None, words: str = "", **more: Any
    ) -> None:
        """`kubectl apply` the sample, with this job's name and number of workers.

        `program` runs instead of the sample's, `words` end its command line, `change` may edit its RayCluster's spec,
        and `more` is what else the RayJob's spec says.
        """
        objects = list(yaml.safe_load_all(self._sample.read_text()))
        rayjob = next(o for o in objects if o["kind"] == "RayJob")
        rayjob["metadata"]["name"] = self.name
        for each in objects:
            each["metadata"]["namespace"] = self.namespace
        spec = rayjob["spec"]
        spec |= more
        entrypoint = spec["entrypoint"].replace("--workers 4", f"--workers {self.workers}")
        spec["entrypoint"] = f"{entrypoint} {words}".rstrip()
        group = spec["rayClusterSpec"]["workerGroupSpecs"][0]
        group["replicas"] = group["minReplicas"] = self.workers
        if not spec["rayClusterSpec"].get("enableInTreeAutoscaling"):
            group["maxReplicas"] = self.workers
        if program:
            code = next(o for o in objects if o["kind"] == "ConfigMap")
            volume = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"][0]
            code["metadata"]["name"] = volume["configMap"]["name"] = self.name
            code["data"] = dict.fromkeys(code["data"], program)
        if self._apart:
            rayspec.apart(spec["rayClusterSpec"])
            rayspec.soon_ready(spec["rayClusterSpec"])
        change(spec["rayClusterSpec"])
        self.manager.apply(yaml.safe_dump_all(objects))

    def delete(self) -> None:
        """`kubectl delete` the RayJob, and the program that it was given."""
        self.manager.delete("rayjob", self.name, self.namespace, wait=False)
        self.manager.delete("configmap", self.name, self.namespace, wait=False)

    def status(self) -> Raw:
        found: Raw = self.manager.get("rayjobs", self.name, self.namespace).get("status") or {}
        return found

    def wait_for_end(self, seconds: float = JOB_SECONDS) -> str:
        """Wait until it has succeeded or failed, and say which."""
        ended = ("SUCCEEDED", "FAILED", "STOPPED")
        wait(lambda: self.status().get("jobStatus") in ended, seconds, f"{self.name} ended", self.dump)
        return str(self.status()["jobStatus"])

    def wait_for_workers(self) -> None:
        """Wait until KubeRay counts every worker as ready."""

        def ready() -> bool:
            counts = self.status().get("rayClusterStatus") or {}
            return int(counts.get("readyWorkerReplicas") or 0) == self.workers

        wait(ready, JOB_SECONDS, f"{self.workers} workers of {self.name} are ready", self.dump)

    def output(self) -> str:
        """The job's output, from its submitter's log."""
        pods = self.manager.items("pods", self.namespace, f"job-name={self.name}")
        return "\n".join(self.manager.log(pod["metadata"]["name"], self.namespace) for pod in pods)

    def result(self) -> dict[str, Any]:
        """The machine-readable last line of the sample's output."""
        # The head knows that the job succeeded before the submitter has fetched the last lines of its log.
        found: dict[str, Any] = self.said("RAYSPAN-RESULT", LOG_SECONDS)
        return found

    def said(self, word: str, seconds: float = JOB_SECONDS) -> Any:
        """Wait for a line of the output that begins with a word and JSON; returns that."""

        def line() -> str:
            lines = (line.partition(f"{word} ")[2] for line in self.output().splitlines())
            return next(filter(None, lines), "")

        return json.loads(wait(line, seconds, f"the submitter of {self.name} printed {word}", self.dump))

    def placement(self) -> Raw:
        """Its newest Placement, {} while there is none."""
        found = self.manager.items("placements", self.namespace)
        mine = [p for p in found if p["spec"]["job"]["name"] == self.name]
        return max(mine, key=lambda p: p["metadata"]["creationTimestamp"], default={})

    def pods(self) -> list[Raw]:
        """Its worker pods in the manager."""
        workers = self.manager.items("pods", self.namespace, f"{names.RAY_NODE_TYPE_LABEL}=worker")
        return [
            p for p in workers if p["metadata"]["labels"].get(names.RAY_GCS_CLUSTER_LABEL, "").startswith(self.name)
        ]

    def events(self) -> dict[str, str]:
        """Rayspan's events about it: reason -> message."""
        found = self.manager.items("events", self.namespace)
        ours = (e for e in found if e["involvedObject"]["name"] == self.name)
        return {e["reason"]: e["message"] for e in ours if e["source"].get("component") == names.EVENT_SOURCE}

    def leftovers(self) -> list[str]:
        """Rayspan's remaining objects of it, in any cluster."""
        placements = self.manager.items("placements", self.namespace)
        return [*(f"manager: Placement {p['metadata']['name']}" for p in placements), *self.remote_objects()]

    def remote_objects(self) -> list[str]:
        """Rayspan's objects in its namespace of the worker clusters."""
        return [
            f"{name}: {kind} {each['metadata']['name']}"
            for name, cluster in self.fleet.workers.items()
            for kind in ("pods", "workloads", "configmaps", "secrets", "services", "endpointslices")
            for each in cluster.items(kind, self.namespace, names.MANAGER_LABEL)
        ]

    def wait_until_gone(self) -> None:
        """Wait until nothing of it is left in any cluster: the 60 s that the job's owner is promised."""
        wait(lambda: not self.leftovers() and not self.pods(), 60, "nothing is left", lambda: str(self.leftovers()))
        wait(lambda: released(self.fleet), 60, "its quota is free again", self.dump)

    def dump(self) -> str:
        """Diagnostics for when it does not go on."""
        pods = self.manager.kubectl("-n", self.namespace, "get", "pods,placements", "-o", "wide")
        which = ("logs", "deploy/rayspan-controller", "--all-pods", "--tail=20")  # of the standby, too
        log = self.manager.kubectl("-n", names.SYSTEM_NAMESPACE, *which)
        return f"{self.status()}\n{self.events()}\n{pods}\n{log}"


def released(fleet: Clusters) -> bool:
    """Whether no job holds quota in the demo's queues of the worker clusters; they show it a second after the last
    release.
    """
    queues = [worker.get("clusterqueues", QUEUE) for worker in fleet.workers.values()]
    return not any((queue.get("status") or {}).get("reservingWorkloads") for queue in queues)


@contextmanager
def removed(job: Job) -> Iterator[Job]:
    """Have a job for a while: in the end it is deleted, and nothing of it is left in any cluster."""
    try:
        yield job
    finally:
        job.delete()
        job.wait_until_gone()
