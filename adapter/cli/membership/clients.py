"""Connects to both clusters of a membership with the administrator's kubeconfigs.

These kubeconfigs are trusted as kubectl trusts them: they may run programs and read files. The identities of both
clusters and the existing objects are read before anything is written.
"""

import argparse
import logging
import shlex
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapter import membership, names
from adapter.cli import common, event_loop
from adapter.cli.commands.options import TOKEN_LIFETIME
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.terminal import print_line
from adapter.membership import AccountToken, ApiServerAddress, Membership, MembershipError, MembershipState
from adapter.objects import api_messages
from adapter.objects.unstructured import Raw, parse_time
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS, WORKER_CLUSTERS

EXIT_INCOMPLETE = 3  # begun, but not complete
MANAGER, WORKER = "manager", "worker"
_MANAGER_OPTIONS, _WORKER_OPTIONS = ("context", "kubeconfig"), ("worker_context", "worker_kubeconfig")


class ClusterError(Exception):
    """A request to one of the clusters failed; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class MembershipClients:
    """Clients of both clusters, and the existing objects of the membership."""

    manager: Client
    worker: Client
    membership: Membership
    existing: MembershipState
    worker_address: ApiServerAddress  # how this machine reaches the worker cluster


def run_reporting_errors(args: argparse.Namespace, command: Coroutine[Any, Any, int]) -> int:
    """Run a subcommand and return its exit code.

    If it raises, print the error to stderr and return the error's exit code.
    """
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    try:
        return event_loop.run_command(command)
    except MembershipError as error:
        return print_error(str(error), EXIT_USAGE)
    except ClusterError as error:
        return print_error(str(error), EXIT_ERROR)


@contextmanager
def reporting_errors(cluster: str) -> Iterator[None]:
    """Raise errors of the block's requests as a `ClusterError` that names the cluster."""
    try:
        yield
    except (BadLogin, Unreachable) as error:
        raise ClusterError(f"The {cluster} cluster cannot be reached: {error}") from None
    except ApiError as error:
        raise ClusterError(_error_message(error, cluster)) from None


@asynccontextmanager
async def open_clients(args: argparse.Namespace) -> AsyncIterator[MembershipClients]:
    """Connect to both clusters of the command line; raise `MembershipError` or `ClusterError`."""
    if not (args.worker_context or args.worker_kubeconfig):
        # No default: a wrong cluster could join.
        raise MembershipError("Name the worker cluster with --worker-context CONTEXT or --worker-kubeconfig FILE.")
    with reporting_errors(MANAGER):
        manager = await Client.for_user(args.kubeconfig, args.context)
    try:
        with reporting_errors(WORKER):
            worker = await Client.for_user(args.worker_kubeconfig or args.kubeconfig, args.worker_context)
        try:
            worker_address = worker.address
            yield await common.await_with_hint(
                _read_membership(manager, worker, args.name, worker_address), "Waiting for both clusters ..."
            )
        finally:
            await worker.close()
    finally:
        await manager.close()


async def _read_membership(
    manager: Client, worker: Client, name: str, worker_address: ApiServerAddress
) -> MembershipClients:
    with reporting_errors(MANAGER):
        manager_identity = membership.cluster_identity_of(await manager.get(NAMESPACES.path(name="kube-system")))
        cluster = await _find_worker_cluster(manager, name)
        secret = await manager.find(SECRETS.path(names.SYSTEM_NAMESPACE, name))
    with reporting_errors(WORKER):
        worker_identity = membership.cluster_identity_of(await worker.get(NAMESPACES.path(name="kube-system")))
        account = await worker.find(SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    return MembershipClients(
        manager,
        worker,
        Membership(name, manager_identity, worker_identity),
        MembershipState(cluster, secret, account),
        worker_address,
    )


async def _find_worker_cluster(manager: Client, name: str) -> Raw | None:
    try:
        return await manager.get(WORKER_CLUSTERS.path(name=name))
    except ApiError as error:
        if error.not_found and api_messages.names_object(error.message, name):
            return None
        if error.not_found:
            raise ClusterError(
                "There are no WorkerClusters: Rayspan is not installed in the manager cluster."
            ) from None
        raise


async def create_token(clients: MembershipClients, lifetime: timedelta) -> AccountToken:
    """Request a token of the account.

    The API server may shorten its lifetime (k8s:pkg/registry/core/serviceaccount/storage/token.go).
    """
    path = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT, "token")
    with reporting_errors(WORKER):
        status = (await clients.worker.create(path, membership.token_request(lifetime))).get("status") or {}
    expires_at, value = parse_time(status.get("expirationTimestamp")), status.get("token")
    if expires_at is None or not isinstance(value, str):
        raise ClusterError("The worker cluster issued no token: its answer to a TokenRequest has none.")
    return AccountToken(value, expires_at)


def print_token_expiry(token: AccountToken, args: argparse.Namespace) -> None:
    """Print when the token ends, whether the lifetime was shortened, and the command that renews it."""
    now = datetime.now(UTC)
    is_shorter = not token.reused and args.expires - (token.expires_at - now) > timedelta(minutes=5)
    lifetime_note = " The worker cluster issues none that lasts longer." if is_shorter else ""
    print_line(
        f"The token expires {membership.describe_expiry(token.expires_at, now)}.{lifetime_note} "
        f"Renew it before that with `{_rotate_command(args)}`."
    )


def _rotate_command(args: argparse.Namespace) -> str:
    """The command that renews the token, for the same clusters and lifetime."""
    lifetime_option = (
        [] if args.expires == TOKEN_LIFETIME else ["--expires", f"{args.expires // timedelta(minutes=1)}m"]
    )
    logins = _login_options(args, _MANAGER_OPTIONS + _WORKER_OPTIONS)
    return shlex.join(["kubectl", "rayspan", "rotate", args.name, *logins, *lifetime_option])


def manager_command(args: argparse.Namespace, *words: str) -> str:
    """A `kubectl rayspan` command for the manager cluster of this command line."""
    return shlex.join(["kubectl", "rayspan", *words, *_login_options(args, _MANAGER_OPTIONS)])


def _login_options(args: argparse.Namespace, options: Iterable[str]) -> list[str]:
    """The command line's words for those of `options` that are set, with absolute paths."""
    values = {name: value for name in options if (value := getattr(args, name))}
    absolute_paths = {
        name: str(Path(value).absolute()) for name, value in values.items() if name.endswith("kubeconfig")
    }
    return [
        word for name, value in (values | absolute_paths).items() for word in (f"--{name.replace('_', '-')}", value)
    ]


def _error_message(error: ApiError, side: str) -> str:
    if error.status == 401:
        return f"The {side} cluster does not accept your credentials: log in again, or check your kubeconfig."
    if error.status == 403:
        return f"This needs an administrator's rights in the {side} cluster: {error.message}"
    return f"The {side} cluster denied the request: {error.message or error}"
