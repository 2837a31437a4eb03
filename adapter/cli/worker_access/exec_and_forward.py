"""`rayspan exec` and `rayspan port-forward`: a command in one worker, and ports of one, by stock kubectl.

The exit code is kubectl's: that of the command, where it ran. 2: there is no such pod, or the command line is wrong.
"""

import argparse

from adapter.access.grant import EXEC, PORT_FORWARD
from adapter.cli.worker_access import grants
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client


def execute(given: argparse.Namespace) -> int:
    """Run a command in a worker and return its exit code."""

    async def doing(client: Client, namespace: str) -> int:
        pod = await grants.pod_of(client, namespace, given.pod)
        container = grants.container_of(pod, given.container)
        streams = {"stdin": given.stdin, "tty": given.tty}
        with grants.ways(given, client) as ways:
            kubectl = await ways.to(pod, EXEC, container=container, command=given.words, **streams)
            flags = [f"--{name}" for name, on in streams.items() if on]
            return await grants.run([*kubectl, "exec", _name(pod), "-c", container, *flags, "--", *given.words])

    return grants.attempt(given, doing)


def forward(given: argparse.Namespace) -> int:
    """Lead ports of this machine to a worker, until somebody ends it; returns kubectl's exit code."""

    async def doing(client: Client, namespace: str) -> int:
        pod = await grants.pod_of(client, namespace, given.pod)
        with grants.ways(given, client) as ways:
            kubectl = await ways.to(pod, PORT_FORWARD)
            return await grants.run([*kubectl, "port-forward", _name(pod), *given.ports, "--address", given.address])

    return grants.attempt(given, doing)


def _name(pod: Raw) -> str:
    return str(pod["metadata"]["name"])
