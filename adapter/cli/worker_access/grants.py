"""Runs kubectl for a worker in a worker cluster, by a WorkerAccess and a kubeconfig through the manager's API server.

The kubeconfig is the user's, with the grant and its key in the server's path. Its private folder is deleted when
kubectl has ended. A pod that runs in the manager cluster needs neither a WorkerAccess nor such a kubeconfig.
"""

import argparse
import asyncio
import json
import logging
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from adapter import names
from adapter.access import access_request, grant
from adapter.cli import common, event_loop
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.job_reader import UnreadableJob
from adapter.objects import api_messages
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import Raw, annotation, meta
from adapter.objects.worker_pod import slot_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import PODS, SERVICES, WORKER_ACCESSES
from adapter.shell.kube.user_kubeconfig import default_namespace

_KEY_BYTES: Final = 32  # encoded as the 43 characters that `access.access_request` accepts
_KUBECTL: Final = "kubectl"
_EXIT_TERMINATED: Final = 143  # 128 + SIGTERM, as in a shell
NO_KUBECTL: Final = "kubectl is not on the PATH; this command needs it."

_PROXY_PATH: Final = SERVICES.path(names.SYSTEM_NAMESPACE, names.ACCESS_SERVICE_PROXY, "proxy")
_NO_ACCESS_SERVER: Final = (
    "This cluster has no access server: an administrator of the manager adds the component worker-access "
    "(docs/logs.md). Until then use the worker cluster, where the pod has the same name."
)

NamespacedVerb = Callable[[Client, str], Awaitable[int]]


class AccessUnavailable(Exception):
    """No access server serves this user; the text is a sentence."""


def run_in_namespace(args: argparse.Namespace, verb: NamespacedVerb) -> int:
    """Run a subcommand with a manager client and the namespace, and return its exit code.

    If it raises, print the error to stderr and return the error's exit code.
    """
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own messages replace its warnings
    try:
        return event_loop.run_command(_run_in_namespace(args, verb))
    except asyncio.CancelledError:
        return _EXIT_TERMINATED
    except UnreadableJob as error:  # the command line may be right
        return print_error(str(error), EXIT_ERROR)
    except InvalidJob as error:
        return print_error(str(error), EXIT_USAGE)
    except AccessUnavailable as error:
        return print_error(str(error), EXIT_ERROR)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(_error_message(error), EXIT_ERROR)


async def _run_in_namespace(args: argparse.Namespace, verb: NamespacedVerb) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # also ends kubectl
    namespace = args.namespace or default_namespace(args.kubeconfig, args.context)
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await verb(client, namespace)
    finally:
        await client.close()


async def get_pod(client: Client, namespace: str, word: str) -> Raw:
    """Read the manager's pod NAME, pod/NAME or pods/NAME; raises InvalidJob if it does not exist."""
    pod = await find_pod(client, namespace, word)
    if pod is None:
        raise InvalidJob(
            f"Namespace {namespace} has no pod {word} in the manager; `kubectl get pods` lists those that exist."
        )
    return pod


async def find_pod(client: Client, namespace: str, word: str) -> Raw | None:
    """As `get_pod`, but None if the pod does not exist."""
    try:
        return await client.find(PODS.path(namespace, word.removeprefix("pod/").removeprefix("pods/")))
    except ValueError:
        return None


def choose_container(pod: Raw, chosen: str) -> str:
    """The container `chosen`, else the one that kubectl would choose; empty if the pod has no container."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    return chosen or annotation(pod, names.DEFAULT_CONTAINER_ANNOTATION) or str(containers[0].get("name") or "")


class KubectlAccess:
    """Builds kubectl commands for pods in any cluster."""

    def __init__(self, args: argparse.Namespace, client: Client, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._login_options = [
            *_option_words("--context", args.context),
            *_option_words("--kubeconfig", args.kubeconfig),
        ]
        self._user_kubeconfig: dict[str, Any] = {}
        self._kubeconfig_count = 0

    async def command_for(self, pod: Raw, subresource: str, **options: Any) -> list[str]:
        """The first words of a kubectl command for a manager pod; if it has a slot, create a WorkerAccess for it.

        Raises AccessUnavailable. `options` are those of `grant.manifest`.
        """
        namespace = str(meta(pod).get("namespace"))
        if not slot_of(pod):
            return [_KUBECTL, *self._login_options, "--namespace", namespace]
        key = secrets.token_urlsafe(_KEY_BYTES)
        if not self._kubeconfig_count:
            await self._check_access_server(f"/{namespace}/any/{key}")
        worker_access = await self._client.create(
            WORKER_ACCESSES.path(namespace), grant.manifest(pod, subresource, key, **options)
        )
        file = await self._write_kubeconfig(f"/{namespace}/{meta(worker_access)['name']}/{key}")
        # kubectl caches discovery by the server's path, which is used only once: the cache is deleted with the folder.
        cache_options = ("--cache-dir", str(self._folder / "cache"))
        return [_KUBECTL, "--kubeconfig", str(file), *cache_options, "--namespace", namespace]

    async def _check_access_server(self, path: str) -> None:
        """Raise AccessUnavailable with the cause if no access server serves the user: kubectl would not print it."""
        try:
            await self._client.get(f"{_PROXY_PATH}{path}/{access_request.VERSIONS}")
        except ApiError as error:
            raise AccessUnavailable(_unavailable_message(error)) from None

    async def _write_kubeconfig(self, path: str) -> Path:
        config = self._user_kubeconfig = self._user_kubeconfig or await asyncio.to_thread(
            _read_user_kubeconfig, self._login_options
        )
        cluster = dict(config["clusters"][0]["cluster"])
        cluster["server"] = f"{cluster['server'].rstrip('/')}{_PROXY_PATH}{path}"
        self._kubeconfig_count += 1
        file = self._folder / f"kubeconfig-{self._kubeconfig_count}"
        file.touch(mode=0o600)
        file.write_text(json.dumps({**config, "clusters": [{**config["clusters"][0], "cluster": cluster}]}))
        return file


@contextmanager
def open_access(args: argparse.Namespace, client: Client) -> Iterator[KubectlAccess]:
    """A KubectlAccess for the block, whose files are deleted at its end."""
    with tempfile.TemporaryDirectory(prefix="rayspan-") as folder:  # its mode is 0700
        yield KubectlAccess(args, client, Path(folder))


async def run_kubectl(command: Sequence[str]) -> int:
    """Run kubectl on this terminal and return its exit code."""
    try:
        child = await asyncio.create_subprocess_exec(*command)
    except FileNotFoundError:
        return print_error(NO_KUBECTL, EXIT_ERROR)
    try:
        return await child.wait()
    except asyncio.CancelledError:  # Ctrl-C, which kubectl also receives, or SIGTERM
        with suppress(ProcessLookupError):
            child.terminate()
        await child.wait()
        raise


async def read_kubectl(command: Sequence[str]) -> str:
    """Run kubectl and return what it prints to stdout; empty if it fails. Cancelling the call ends kubectl."""
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return ""
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return output.decode(errors="replace") if child.returncode == 0 else ""


def _read_user_kubeconfig(login_options: Sequence[str]) -> dict[str, Any]:
    """The current context of the user's kubeconfig, with files inlined."""
    command = [_KUBECTL, *login_options, "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=True)
        config: dict[str, Any] = json.loads(completed.stdout)
        if not config["clusters"][0]["cluster"]["server"]:
            raise ValueError
    except FileNotFoundError:
        raise InvalidJob(NO_KUBECTL) from None
    except (subprocess.CalledProcessError, ValueError, LookupError, TypeError):
        raise InvalidJob(
            "kubectl finds no cluster in your kubeconfig: name one with --context or --kubeconfig."
        ) from None
    return config


def _option_words(name: str, value: str) -> list[str]:
    return [name, value] if value else []


def _error_message(error: ApiError) -> str:
    if error.status == 401:
        return common.UNKNOWN_USER
    return _NO_ACCESS_SERVER if error.not_found else api_messages.policy_message(error.message) or str(error)


def _unavailable_message(error: ApiError) -> str:
    if error.status == 403:
        role = names.ACCESS_ROLE
        command = (
            f"kubectl -n {names.SYSTEM_NAMESPACE} create rolebinding {role} --role={role} "
            f"{common.rolebinding_subject(error)}"
        )
        return (
            "You may not use the access server of this cluster; an administrator of the manager can "
            f"allow it with `{command}`."
        )
    if error.not_found:
        return _NO_ACCESS_SERVER
    return f"The access server of this cluster does not answer: {error.message or error.reason}."
