"""Leads the API server's proxy to the plans of the controller under test, and asks for them as a user does.

A pod on a fake node has the address of the controller, because the proxy leads to addresses of pods only.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import progress
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, TOLERATION

DOOR = "rayspan-plan-under-test"  # the pod that stands for the controller


@contextmanager
def opened(manager: Cluster, running: Controller) -> Iterator[None]:
    """Put the running controller behind the Service for a while."""
    try:
        manager.apply(yaml.safe_dump(_pod(manager, running.plan_port)))
        manager.wait(lambda: condition(_door(manager), "Ready").get("status") == "True", 30, "the door stands")
        address = _address(manager)
        patch = json.dumps({"status": {"podIP": address, "podIPs": [{"ip": address}]}})
        how = ("patch", "pod", DOOR, "--subresource=status", "--type=merge", "-p", patch)
        manager.kubectl("-n", names.SYSTEM_NAMESPACE, *how)
        # 2 is the controller's own answer: there is no job in it.
        question = partial(plan, manager.kubeconfig, {"kind": "RayJob"})
        wait(
            lambda: question().returncode == 2, 30, "the controller answers", lambda: f"{question()}\n{running.tail()}"
        )
        yield
    finally:
        manager.delete("pod", DOOR, names.SYSTEM_NAMESPACE)


def plan(kubeconfig: Path, job: Raw | str, *more: str) -> subprocess.CompletedProcess[str]:
    """The plan of a job, an object or text."""
    text = job if isinstance(job, str) else yaml.safe_dump(job)
    return ask(kubeconfig, "plan", "-f", "-", *more, text=text)


def ask(kubeconfig: Path, verb: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """The command as a process; `text` is what it reads."""
    done = subprocess.run(
        [sys.executable, "-m", "adapter", verb, *words, "--kubeconfig", str(kubeconfig)],
        cwd=REPO,
        env=os.environ,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return progress.without(done)


def _address(manager: Cluster) -> str:
    """Under which address the manager's API server reaches this machine."""
    server = urlsplit(manager.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname, server.port or 443))
        return str(probe.getsockname()[0])


def _door(manager: Cluster) -> Raw:
    return manager.get("pods", DOOR, names.SYSTEM_NAMESPACE)


def _pod(manager: Cluster, port: int) -> Raw:
    """A pod that the Service selects, on a fake node."""
    service = manager.get("services", names.SERVICE, names.SYSTEM_NAMESPACE)
    container = {
        "name": "controller",
        "image": "none",
        "ports": [{"name": names.PLAN_PORT_NAME, "containerPort": port}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": DOOR, "namespace": names.SYSTEM_NAMESPACE, "labels": service["spec"]["selector"]},
        "spec": {
            "nodeSelector": FAKE_NODE,
            "tolerations": [TOLERATION],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
