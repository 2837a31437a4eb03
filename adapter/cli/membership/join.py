"""`rayspan join`: make a cluster a worker of this manager.

In the worker cluster it makes an account with the rights of kustomize/overlays/worker, and a token of it that ends; in the manager a
Secret with a kubeconfig and a WorkerCluster. It then waits until the controller is connected, and looks with the account's own rights
whether workers could be sent there. Doing it again changes nothing, and goes on where one that was stopped ended. Exit code 0: it has
joined; 3: it has, but something would keep workers away; 2: the command line is wrong, and nothing was written; 1: anything else.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import yaml

from adapter import membership, names
from adapter.cli import common
from adapter.cli.common import DONE
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import MANAGER, NOT_YET, WORKER, Sides, asking
from adapter.cli.membership.membership_objects import Tell
from adapter.cli.preflight import inspection, run
from adapter.membership import Address, Token, Unusable
from adapter.objects.unstructured import Raw, annotation, condition, meta
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import Asked, Finding
from adapter.shell.kube import kubeconfig
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.pagination import listed
from adapter.shell.kube.resources import (
    CONFIG_MAPS,
    DISPATCH_POLICIES,
    LOCAL_QUEUES,
    NAMESPACES,
    SECRETS,
    WORKER_CLUSTERS,
)

# A controller that runs connects within two seconds; after an upgrade its new leader needs ten.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 1.0
LOOKS = 3  # an API server grants a right a moment after it was bound
_OLD_ACCOUNT = "kubernetes.io/service-account.name"


def main(given: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.attempt(given, _run(given))


async def _run(given: argparse.Namespace) -> int:
    async with clients.logged_in(given) as both:
        namespaces = list(dict.fromkeys(given.namespace)) or ["default"]
        there = await _may(both, given.server, namespaces)
        if given.output:
            print(_shown(both, there, namespaces, given.expires), end="")
            return DONE
        token = await hand_over(both, there, namespaces, given.expires, print)
        with asking(MANAGER):
            await membership_objects.apply(
                both.manager, f"{MANAGER} cluster", membership.worker_cluster(given.name), print
            )
        clients.tell_token(token, given)
        await _tell_of_old_token(both)
        return await _usable(given, both, token, namespaces)


async def _may(both: Sides, server: str, namespaces: Sequence[str]) -> Address:
    """The address that is handed on; raises Unusable while nothing is written yet."""
    why = membership.not_to_join(both.one, both.found)
    if why:
        raise Unusable(why)
    there = await address(both, server)
    why = membership.out_of_reach(there, asked=bool(server))
    if why:
        raise Unusable(why)
    try:  # as the controller will
        await (await kubeconfig.login(membership.kubeconfig(there, membership.HIDDEN))).close()
    except BadLogin as error:
        raise Unusable(f"The controller would not take this kubeconfig: {error}.") from None
    with asking(WORKER):
        for namespace in namespaces:
            if not await both.worker.find(NAMESPACES.path(name=namespace)):
                raise Unusable(
                    f"There is no namespace {namespace} in the worker cluster: create it, or name another by -n."
                )
    return there


async def address(both: Sides, server: str) -> Address:
    """How the manager is to reach the worker cluster: as this machine does, without its proxy; or by another URL.

    Who answers at another URL may show a certificate of the cluster's own authority, in place of one that is made for people.
    """
    there = replace(both.here, proxy="")
    if not server:
        return there
    with asking(WORKER):
        found = await both.worker.find(CONFIG_MAPS.path("kube-system", names.ROOT_AUTHORITY))
    own = str(((found or {}).get("data") or {}).get("ca.crt") or "")
    authority = there.authority if own.strip() in there.authority else f"{there.authority}{own}"
    return Address(server.rstrip("/"), authority, verified=there.verified)


async def hand_over(both: Sides, there: Address, namespaces: Sequence[str], lifetime: timedelta, tell: Tell) -> Token:
    """Make the account, and the manager's Secret with a kubeconfig of it; a token that lasts is kept."""
    made = membership.worker_side(
        both.one, membership_objects.account(), membership_objects.opening(), namespaces, both.found.account
    )
    with asking(WORKER):
        for body in made:
            await membership_objects.apply(both.worker, f"{WORKER} cluster", body, tell)
    kept = membership.kept(both.one, both.found, there, datetime.now(UTC))
    token = kept if kept and await _accepted(both, kept) else await clients.minted(both, lifetime)
    body = membership.secret(both.one, membership.kubeconfig(there, token.value), token.ends)
    with asking(MANAGER):
        await membership_objects.apply(both.manager, f"{MANAGER} cluster", body, tell)
    return token


async def _accepted(both: Sides, token: Token) -> bool:
    """Whether the token still works: that of an account that was deleted, and made again, does not."""
    with asking(WORKER):
        client = await _as_account(both, token)
        try:
            await client.alive()
        except ApiError as error:
            if error.status != 401:
                raise
            return False
        finally:
            await client.close()
    return True


async def _as_account(both: Sides, token: Token) -> Client:
    """The worker cluster by the account's rights, on the way that this machine takes."""
    return await Client.from_kubeconfig(membership.kubeconfig(both.here, token.value), both.one.name)


async def _tell_of_old_token(both: Sides) -> None:
    """The token that earlier versions made never ends; others may use it, so it is told of, and not deleted."""
    with asking(WORKER):
        old = await both.worker.find(SECRETS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    if old and annotation(old, _OLD_ACCOUNT) == names.WORKER_ACCOUNT:
        print(
            f"Secret {names.WORKER_ACCOUNT} of the worker cluster holds a token that never ends, of an earlier installation. If no other manager uses it, "
            f"delete it there: `kubectl -n {names.SYSTEM_NAMESPACE} delete secret {names.WORKER_ACCOUNT}`."
        )


# --- what comes next -------------------------------------------------------------------------------------------------


async def _usable(given: argparse.Namespace, both: Sides, token: Token, namespaces: Sequence[str]) -> int:
    name = both.one.name
    silent = await common.told(_silent(both), "Waiting until the controller is connected ...")
    print(f"WorkerCluster {name} is {'joined, but not connected' if silent else 'connected'}.", flush=True)
    failures = [] if silent else await _failures(both, token, namespaces)
    for sentence in [*([silent] if silent else ()), *(one.message for one in failures)]:
        print(f"Failure: {sentence}", flush=True)
    for sentence in await _next(given, both, namespaces, looked=not silent):
        print(f"Next: {sentence}")
    return NOT_YET if silent or failures else DONE


async def _silent(both: Sides) -> str:
    """Why the controller does not see the cluster after a while, a sentence; empty once it does."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        with asking(MANAGER):
            found = await both.manager.get(WORKER_CLUSTERS.path(name=both.one.name))
        told = condition(found, names.CONNECTED)
        current = told.get("observedGeneration") == meta(found).get("generation")
        if current and told.get("status") == "True":
            return ""
        if asyncio.get_running_loop().time() > deadline:
            said = told.get("message") if current else "the controller has not said anything of it"
            return f"{said or 'the controller gives no reason'}; see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`, and --server of this command."
        await asyncio.sleep(PAUSE_SECONDS)


async def _failures(both: Sides, token: Token, namespaces: Sequence[str]) -> list[Finding]:
    """What would keep workers away, as the account itself sees it; a preflight's own words."""
    with asking(WORKER):
        client = await _as_account(both, token)
    try:
        for _ in range(LOOKS):
            looked = [await _looked(both, client, namespace) for namespace in namespaces]
            found = [one for findings in looked for one in findings if one.outcome == "failure"]
            if not any(one.check == "Rights" for one in found):
                break
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await client.close()
    return list({one.message: one for one in found}.values())


async def _looked(both: Sides, client: Client, namespace: str) -> list[Finding]:
    spec = (both.found.cluster or {}).get("spec") or {}
    head = (spec.get("head") or {}).get("address") or "PodIP"
    scheduler = (spec.get("pods") or {}).get("schedulerName") or ""
    with asking(MANAGER):
        queues = await run.queues(both.manager, namespace)
    side = await inspection.worker(client, both.one.name, head, scheduler, namespace, queues)
    return evaluation.judge([side], Asked(namespace, queues, ""))


async def _next(given: argparse.Namespace, both: Sides, namespaces: Sequence[str], *, looked: bool) -> list[str]:
    name = both.one.name
    with asking(MANAGER):
        policies = membership.naming((await listed(both.manager, DISPATCH_POLICIES.path()))[0], name)
        unasked = [one for one in namespaces if looked and await _queueless(both.manager, one)]
    sends = f"DispatchPolicy {', '.join(policies)} sends workers there."
    none = f"No DispatchPolicy names {name} yet: add it to spec.clusters.names of one, unless one selects it by its labels."
    preflight = clients.to_manager(given, "preflight", "--worker-cluster", name, "-n", namespaces[0])
    tries = f"`{preflight}` tries whether pods of both clusters reach each other."
    return [*map(_without_queue, unasked), sends if policies else none, tries]


async def _queueless(manager: Client, namespace: str) -> bool:
    """Whether no queue of a namespace asks our check; not where that may not be read."""
    readable = await inspection.listed(manager, LOCAL_QUEUES, namespace) is not None
    return readable and not await run.queues(manager, namespace)


def _without_queue(namespace: str) -> str:
    return (
        f"In the manager, namespace {namespace} has no LocalQueue yet whose ClusterQueue lists our AdmissionCheck, so no queue of the worker "
        "cluster was looked at: create one, of the same name in both."
    )


# --- what is only shown ----------------------------------------------------------------------------------------------


def _shown(both: Sides, there: Address, namespaces: Sequence[str], lifetime: timedelta) -> str:
    worker = membership.worker_side(
        both.one, membership_objects.account(), membership_objects.opening(), namespaces, both.found.account
    )
    text = membership.kubeconfig(there, membership.HIDDEN)
    secret = membership.secret(both.one, text, datetime.now(UTC) + lifetime)
    del secret["data"], secret["metadata"]["annotations"][names.TOKEN_ENDS_ANNOTATION]
    secret["stringData"] = {names.KUBECONFIG_KEY: text}
    hours = int(lifetime.total_seconds()) // 3600
    note = (
        f"# No token was made, and none is shown: {membership.HIDDEN} stands for it. By hand, in the worker cluster:\n"
        f"#   kubectl -n {names.SYSTEM_NAMESPACE} create token {names.WORKER_ACCOUNT} --duration={max(hours, 1)}h\n"
    )
    manager = [secret, membership.worker_cluster(both.one.name)]
    return f"# In the worker cluster.\n{_documents(worker)}---\n# In the manager cluster.\n{note}{_documents(manager)}"


def _documents(objects: Sequence[Raw]) -> str:
    return "---\n".join(yaml.dump(one, Dumper=_Lines, sort_keys=False) for one in objects)


class _Lines(yaml.SafeDumper):
    """A text of several lines stays one."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Lines.add_representer(str, _text)
