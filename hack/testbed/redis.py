"""The Redis in which heads keep their state while a test runs: one in the manager, with a password, without disk.

On the lab its image is built and imported now; other clusters pull the published one of that name.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from hack.lab.base import lab as definition
from hack.lab.base import lock
from hack.lab.base.paths import STATE
from hack.lab.cluster import containerd
from hack.lab.images import images
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw

NAME = "e2e-redis"  # of the Pod, of its Service and of the Secret
OPTIONS = {  # KubeRay's gcsFaultToleranceOptions
    "redisAddress": f"{NAME}:6379",
    "redisPassword": {"valueFrom": {"secretKeyRef": {"name": NAME, "key": "password"}}},
}
_PASSWORD = "of-this-test-alone"
_ENV = [{"name": "REDISCLI_AUTH", "value": _PASSWORD}]  # so that redis-cli prints no warning


def bring() -> None:
    """Give the lab's manager the image."""
    archive = images.archive_for("redis")
    with lock.held(STATE / "lock", "waiting for another command on the lab"):
        containerd.bring(definition.load().manager, "redis", archive)


@contextmanager
def running(manager: Cluster) -> Iterator[None]:
    """Have it for a while."""
    labels = {"app": NAME}
    secret = _object("Secret", stringData={"password": _PASSWORD})
    service = _object("Service", spec={"selector": labels, "ports": [{"port": 6379}]})
    pod = _object("Pod", spec={"containers": [_container()], "terminationGracePeriodSeconds": 1})
    pod["metadata"]["labels"] = labels
    try:
        for each in (secret, service, pod):
            manager.apply(json.dumps(each))
        wait(lambda: condition(manager.get("pods", NAME), "Ready").get("status") == "True", 60, "Redis is ready",
             lambda: manager.kubectl("describe", "pod", NAME))  # fmt: skip
        yield
    finally:
        for kind in ("pod", "service", "secret"):
            manager.delete(kind, NAME)


def _container() -> Raw:
    words = ["redis-server", "--protected-mode", "no", "--requirepass", _PASSWORD, "--save", "", "--appendonly", "no"]
    ready = {"exec": {"command": ["redis-cli", "ping"]}, "periodSeconds": 1}
    return {"name": "redis", "image": images.reference("redis"), "command": words, "env": _ENV, "readinessProbe": ready}


def _object(kind: str, **rest: Raw) -> Raw:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": NAME, "namespace": NAMESPACE}, **rest}
