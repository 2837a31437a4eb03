"""`rayspan exec` and `rayspan port-forward`: run a command in a worker, or forward its ports, with stock kubectl.

Exit code: kubectl's, which is that of the command if it ran; 2: no such pod, or wrong command line.
"""

import argparse

from adapter.access.grant import EXEC, PORT_FORWARD
from adapter.cli.worker_access import grants
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client


def run_exec(args: argparse.Namespace) -> int:
    """Run a command in a worker and return its exit code."""

    async def execute(client: Client, namespace: str) -> int:
        pod = await grants.get_pod(client, namespace, args.pod)
        container = grants.choose_container(pod, args.container)
        streams = {"stdin": args.stdin, "tty": args.tty}
        with grants.open_access(args, client) as access:
            kubectl = await access.command_for(pod, EXEC, container=container, command=args.words, **streams)
            flags = [f"--{name}" for name, enabled in streams.items() if enabled]
            return await grants.run_kubectl(
                [*kubectl, "exec", _pod_name(pod), "-c", container, *flags, "--", *args.words]
            )

    return grants.run_in_namespace(args, execute)


def run_port_forward(args: argparse.Namespace) -> int:
    """Forward local ports to a worker until kubectl ends; return its exit code."""

    async def forward(client: Client, namespace: str) -> int:
        pod = await grants.get_pod(client, namespace, args.pod)
        with grants.open_access(args, client) as access:
            kubectl = await access.command_for(pod, PORT_FORWARD)
            return await grants.run_kubectl(
                [*kubectl, "port-forward", _pod_name(pod), *args.ports, "--address", args.address]
            )

    return grants.run_in_namespace(args, forward)


def _pod_name(pod: Raw) -> str:
    return str(pod["metadata"]["name"])
