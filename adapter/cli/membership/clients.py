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
from adapter.cli.commands.options import LIFETIME
from adapter.cli.common import TROUBLE, USAGE, complain
from adapter.membership import Address, Found, Membership, Token, Unusable
from adapter.objects.unstructured import Raw, moment
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS, WORKER_CLUSTERS

NOT_YET = 3  # exit code: it was begun, and something is still in the way
MANAGER, WORKER = "manager", "worker"
_OF_MANAGER, _OF_WORKER = ("context", "kubeconfig"), ("worker_context", "worker_kubeconfig")


class Trouble(Exception):
    """One of the clusters did not do what it was asked; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters, and what stands there of the membership."""

    manager: Client
    worker: Client
    one: Membership
    found: Found
    here: Address  # how this machine reaches the worker cluster


def attempt(given: argparse.Namespace, doing: Coroutine[Any, Any, int]) -> int:
    """Run a verb; returns its exit code, or that of the trouble that it met, which is then one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        return asyncio.run(doing)
    except Unusable as error:
        return complain(str(error), USAGE)
    except Trouble as error:
        return complain(str(error), TROUBLE)


@contextmanager
def asking(side: str) -> Iterator[None]:
    """What goes wrong within is the trouble of that cluster."""
    try:
        yield
    except (BadLogin, Unreachable) as error:
        raise Trouble(f"The {side} cluster cannot be asked: {error}") from None
    except ApiError as error:
        raise Trouble(_explained(error, side)) from None


@asynccontextmanager
async def logged_in(given: argparse.Namespace) -> AsyncIterator[Sides]:
    """Both sides, by what the command line names; raises Unusable or Trouble."""
    if not (given.worker_context or given.worker_kubeconfig):
        # No silent default: a wrong cluster would join.
        raise Unusable("Say which cluster is the worker: --worker-context CONTEXT, or --worker-kubeconfig FILE.")
    with asking(MANAGER):
        manager = await Client.of_user(given.kubeconfig, given.context)
    try:
        with asking(WORKER):
            worker = await Client.of_user(given.worker_kubeconfig or given.kubeconfig, given.worker_context)
        try:
            here = worker.address
            yield await common.told(_seen(manager, worker, given.name, here), "Waiting for both clusters ...")
        finally:
            await worker.close()
    finally:
        await manager.close()


async def _seen(manager: Client, worker: Client, name: str, here: Address) -> Sides:
    with asking(MANAGER):
        ours = membership.identity(await manager.get(NAMESPACES.path(name="kube-system")))
        cluster = await _worker_cluster(manager, name)
        secret = await manager.find(SECRETS.path(names.SYSTEM_NAMESPACE, name))
    with asking(WORKER):
        theirs = membership.identity(await worker.get(NAMESPACES.path(name="kube-system")))
        account = await worker.find(SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    return Sides(manager, worker, Membership(name, ours, theirs), Found(cluster, secret, account), here)


async def _worker_cluster(manager: Client, name: str) -> Raw | None:
    try:
        return await manager.get(WORKER_CLUSTERS.path(name=name))
    except ApiError as error:
        if error.missing and f'"{name}"' in error.message:
            return None
        if error.missing:
            raise Trouble("There are no WorkerClusters: Rayspan is not installed in the manager cluster.") from None
        raise


async def minted(sides: Sides, lifetime: timedelta) -> Token:
    """A new token of the account. An API server may give a shorter one (k8s:pkg/registry/core/serviceaccount/storage/token.go)."""
    path = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT, "token")
    with asking(WORKER):
        given = (await sides.worker.create(path, membership.token_request(lifetime))).get("status") or {}
    ends, value = moment(given.get("expirationTimestamp")), given.get("token")
    if ends is None or not isinstance(value, str):
        raise Trouble("The worker cluster cannot be asked: it answers a TokenRequest without a token.")
    return Token(value, ends)


def tell_token(token: Token, given: argparse.Namespace) -> None:
    """Say when a token ends, what was asked for, and the command that renews it."""
    now = datetime.now(UTC)
    short = not token.kept and given.expires - (token.ends - now) > timedelta(minutes=5)
    less = " The worker cluster gives none that lasts longer." if short else ""
    print(f"The token ends {membership.when(token.ends, now)}.{less} Renew it before, by `{_rotation(given)}`.")


def _rotation(given: argparse.Namespace) -> str:
    """The command that renews a token for as long, between the clusters that the command line names."""
    lasting = [] if given.expires == LIFETIME else ["--expires", f"{given.expires // timedelta(minutes=1)}m"]
    logins = _logins(given, _OF_MANAGER + _OF_WORKER)
    return shlex.join(["kubectl", "rayspan", "rotate", given.name, *logins, *lasting])


def to_manager(given: argparse.Namespace, *words: str) -> str:
    """A command of ours to the manager cluster that the command line names."""
    return shlex.join(["kubectl", "rayspan", *words, *_logins(given, _OF_MANAGER)])


def _logins(given: argparse.Namespace, options: Iterable[str]) -> list[str]:
    """Those options of the command line, as they are right from whatever folder."""
    named = {name: value for name in options if (value := getattr(given, name))}
    whole = {name: str(Path(value).absolute()) for name, value in named.items() if name.endswith("kubeconfig")}
    return [word for name, value in (named | whole).items() for word in (f"--{name.replace('_', '-')}", value)]


def _explained(error: ApiError, side: str) -> str:
    if error.status == 401:
        return f"The {side} cluster does not know you: log in again, or check your kubeconfig's credentials."
    if error.status == 403:
        return f"This needs an administrator's rights in the {side} cluster: {error.message}"
    return f"The {side} cluster refuses: {error.message or error}"
