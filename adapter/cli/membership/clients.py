"""Who is spoken to when a cluster joins, and as whom? The manager and a worker cluster, by two logins of the same person.

Both are administrators' logins, by kubeconfigs that may do whatever kubectl lets them: run programs, read files. Before anything is
written it is known which clusters they lead to, and what stands there.
"""

import argparse
import asyncio
import logging
import shlex
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapter import membership, names
from adapter.cli import common
from adapter.cli.commands.options import TOKEN_LIFETIME
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.membership import AccountToken, ApiServerAddress, Membership, MembershipError, MembershipState
from adapter.objects import api_messages
from adapter.objects.unstructured import Raw, parse_time
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS, WORKER_CLUSTERS

EXIT_INCOMPLETE = 3  # exit code: it was begun, and something is still in the way
MANAGER, WORKER = "manager", "worker"
_MANAGER_OPTIONS, _WORKER_OPTIONS = ("context", "kubeconfig"), ("worker_context", "worker_kubeconfig")


class ClusterError(Exception):
    """One of the clusters did not do what it was asked; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class MembershipClients:
    """Both clusters, and what stands there of the membership."""

    manager: Client
    worker: Client
    membership: Membership
    existing: MembershipState
    worker_address: ApiServerAddress  # how this machine reaches the worker cluster


def run_reporting_errors(args: argparse.Namespace, command: Coroutine[Any, Any, int]) -> int:
    """Run a verb; returns its exit code, or that of the trouble that it met, which is then one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(command)
    except MembershipError as error:
        return print_error(str(error), EXIT_USAGE)
    except ClusterError as error:
        return print_error(str(error), EXIT_ERROR)


@contextmanager
def reporting_errors(cluster: str) -> Iterator[None]:
    """What goes wrong within is the trouble of that cluster."""
    try:
        yield
    except (BadLogin, Unreachable) as error:
        raise ClusterError(f"The {cluster} cluster cannot be asked: {error}") from None
    except ApiError as error:
        raise ClusterError(_error_message(error, cluster)) from None


@asynccontextmanager
async def open_clients(args: argparse.Namespace) -> AsyncIterator[MembershipClients]:
    """Both sides, by what the command line names; raises Unusable or Trouble."""
    if not (args.worker_context or args.worker_kubeconfig):
        # No silent default: a wrong cluster would join.
        raise MembershipError("Say which cluster is the worker: --worker-context CONTEXT, or --worker-kubeconfig FILE.")
    with reporting_errors(MANAGER):
        manager = await Client.for_user(args.kubeconfig, args.context)
    try:
        with reporting_errors(WORKER):
            worker = await Client.for_user(args.worker_kubeconfig or args.kubeconfig, args.worker_context)
        try:
            here = worker.address
            yield await common.await_with_hint(
                _read_membership(manager, worker, args.name, here), "Waiting for both clusters ..."
            )
        finally:
            await worker.close()
    finally:
        await manager.close()


async def _read_membership(
    manager: Client, worker: Client, name: str, worker_address: ApiServerAddress
) -> MembershipClients:
    with reporting_errors(MANAGER):
        ours = membership.cluster_identity_of(await manager.get(NAMESPACES.path(name="kube-system")))
        cluster = await _find_worker_cluster(manager, name)
        secret = await manager.find(SECRETS.path(names.SYSTEM_NAMESPACE, name))
    with reporting_errors(WORKER):
        theirs = membership.cluster_identity_of(await worker.get(NAMESPACES.path(name="kube-system")))
        account = await worker.find(SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    return MembershipClients(
        manager, worker, Membership(name, ours, theirs), MembershipState(cluster, secret, account), worker_address
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
    """A new token of the account. An API server may give a shorter one (k8s:pkg/registry/core/serviceaccount/storage/token.go)."""
    path = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT, "token")
    with reporting_errors(WORKER):
        given = (await clients.worker.create(path, membership.token_request(lifetime))).get("status") or {}
    ends, value = parse_time(given.get("expirationTimestamp")), given.get("token")
    if ends is None or not isinstance(value, str):
        raise ClusterError("The worker cluster cannot be asked: it answers a TokenRequest without a token.")
    return AccountToken(value, ends)


def print_token_expiry(token: AccountToken, args: argparse.Namespace) -> None:
    """Say when a token ends, what was asked for, and the command that renews it."""
    now = datetime.now(UTC)
    short = not token.reused and args.expires - (token.expires_at - now) > timedelta(minutes=5)
    less = " The worker cluster gives none that lasts longer." if short else ""
    print(
        f"The token ends {membership.describe_expiry(token.expires_at, now)}.{less} Renew it before, by `{_rotate_command(args)}`."
    )


def _rotate_command(args: argparse.Namespace) -> str:
    """The command that renews a token for as long, between the clusters that the command line names."""
    lasting = [] if args.expires == TOKEN_LIFETIME else ["--expires", f"{args.expires // timedelta(minutes=1)}m"]
    logins = _login_options(args, _MANAGER_OPTIONS + _WORKER_OPTIONS)
    return shlex.join(["kubectl", "rayspan", "rotate", args.name, *logins, *lasting])


def manager_command(args: argparse.Namespace, *words: str) -> str:
    """A command of ours to the manager cluster that the command line names."""
    return shlex.join(["kubectl", "rayspan", *words, *_login_options(args, _MANAGER_OPTIONS)])


def _login_options(args: argparse.Namespace, options: Iterable[str]) -> list[str]:
    """Those options of the command line, as they are right from whatever folder."""
    named = {name: value for name in options if (value := getattr(args, name))}
    whole = {name: str(Path(value).absolute()) for name, value in named.items() if name.endswith("kubeconfig")}
    return [word for name, value in (named | whole).items() for word in (f"--{name.replace('_', '-')}", value)]


def _error_message(error: ApiError, side: str) -> str:
    if error.status == 401:
        return f"The {side} cluster does not know you: log in again, or check your kubeconfig's credentials."
    if error.status == 403:
        return f"This needs an administrator's rights in the {side} cluster: {error.message}"
    return f"The {side} cluster refuses: {error.message or error}"
