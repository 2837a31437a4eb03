"""`rayspan exec` and `rayspan port-forward`: a command in one worker, and ports of one, by stock kubectl.

The exit code is kubectl's: that of the command, where it ran. 2: there is no such pod, or the command line is wrong.
"""

import argparse

from adapter.access.grant import EXEC, PORT_FORWARD
from adapter.cli.worker_access import grants
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client


def run_exec(args: argparse.Namespace) -> int:
    """Run a command in a worker and return its exit code."""

    async def doing(client: Client, namespace: str) -> int:
        pod = await grants.get_pod(client, namespace, args.pod)
        container = grants.choose_container(pod, args.container)
        streams = {"stdin": args.stdin, "tty": args.tty}
        with grants.open_access(args, client) as ways:
            kubectl = await ways.command_for(pod, EXEC, container=container, command=args.words, **streams)
            flags = [f"--{name}" for name, on in streams.items() if on]
            return await grants.run_kubectl(
                [*kubectl, "exec", _pod_name(pod), "-c", container, *flags, "--", *args.words]
            )

    return grants.run_in_namespace(args, doing)


def run_port_forward(args: argparse.Namespace) -> int:
    """Lead ports of this machine to a worker, until somebody ends it; returns kubectl's exit code."""

    async def doing(client: Client, namespace: str) -> int:
        pod = await grants.get_pod(client, namespace, args.pod)
        with grants.open_access(args, client) as ways:
            kubectl = await ways.command_for(pod, PORT_FORWARD)
            return await grants.run_kubectl(
                [*kubectl, "port-forward", _pod_name(pod), *args.ports, "--address", args.address]
            )

    return grants.run_in_namespace(args, doing)


def _pod_name(pod: Raw) -> str:
    return str(pod["metadata"]["name"])
