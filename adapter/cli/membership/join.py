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
from adapter.cli.common import EXIT_OK
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import EXIT_INCOMPLETE, MANAGER, WORKER, MembershipClients, reporting_errors
from adapter.cli.membership.membership_objects import ReportLine
from adapter.cli.preflight import inspection, run
from adapter.membership import AccountToken, ApiServerAddress, MembershipError
from adapter.objects.unstructured import Raw, annotation, condition, meta
from adapter.preflight import evaluation
from adapter.preflight.preflight_facts import Finding, PreflightOptions
from adapter.shell.kube import kubeconfig
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import (
    CONFIG_MAPS,
    DISPATCH_POLICIES,
    LOCAL_QUEUES,
    NAMESPACES,
    SECRETS,
    WORKER_CLUSTERS,
)

# A controller that runs connects within two seconds; after an upgrade its new leader needs ten.
CONNECT_TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 1.0
RIGHTS_ATTEMPTS = 3  # an API server grants a right a moment after it was bound
_TOKEN_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


def main(args: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.run_reporting_errors(args, _join_cluster(args))


async def _join_cluster(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        namespaces = list(dict.fromkeys(args.namespace)) or ["default"]
        there = await _checked_address(both, args.server, namespaces)
        if args.output:
            print(_render_manifests(both, there, namespaces, args.expires), end="")
            return EXIT_OK
        token = await create_login(both, there, namespaces, args.expires, print)
        with reporting_errors(MANAGER):
            await membership_objects.apply_object(
                both.manager, f"{MANAGER} cluster", membership.worker_cluster_manifest(args.name), print
            )
        clients.print_token_expiry(token, args)
        await _report_legacy_token(both)
        return await _report_readiness(args, both, token, namespaces)


async def _checked_address(both: MembershipClients, server: str, namespaces: Sequence[str]) -> ApiServerAddress:
    """The address that is handed on; raises Unusable while nothing is written yet."""
    why = membership.join_problem(both.membership, both.existing)
    if why:
        raise MembershipError(why)
    there = await address_for_manager(both, server)
    why = membership.address_problem(there, explicit=bool(server))
    if why:
        raise MembershipError(why)
    try:  # as the controller will
        await (await kubeconfig.login_of_text(membership.build_kubeconfig(there, membership.TOKEN_PLACEHOLDER))).close()
    except BadLogin as error:
        raise MembershipError(f"The controller would not take this kubeconfig: {error}.") from None
    with reporting_errors(WORKER):
        for namespace in namespaces:
            if not await both.worker.find(NAMESPACES.path(name=namespace)):
                raise MembershipError(
                    f"There is no namespace {namespace} in the worker cluster: create it, or name another by -n."
                )
    return there


async def address_for_manager(both: MembershipClients, server: str) -> ApiServerAddress:
    """How the manager is to reach the worker cluster: as this machine does, without its proxy; or by another URL.

    Who answers at another URL may show a certificate of the cluster's own authority, in place of one that is made for people.
    """
    there = replace(both.worker_address, proxy_url="")
    if not server:
        return there
    with reporting_errors(WORKER):
        found = await both.worker.find(CONFIG_MAPS.path("kube-system", names.ROOT_CA_CONFIG_MAP))
    own = str(((found or {}).get("data") or {}).get("ca.crt") or "")
    authority = there.ca_bundle if own.strip() in there.ca_bundle else f"{there.ca_bundle}{own}"
    return ApiServerAddress(server.rstrip("/"), authority, verified=there.verified)


async def create_login(
    both: MembershipClients,
    worker_address: ApiServerAddress,
    namespaces: Sequence[str],
    lifetime: timedelta,
    report: ReportLine,
) -> AccountToken:
    """Make the account, and the manager's Secret with a kubeconfig of it; a token that lasts is kept."""
    made = membership.worker_cluster_objects(
        both.membership,
        membership_objects.account_objects(),
        membership_objects.namespace_binding(),
        namespaces,
        both.existing.service_account,
    )
    with reporting_errors(WORKER):
        for body in made:
            await membership_objects.apply_object(both.worker, f"{WORKER} cluster", body, report)
    kept = membership.reusable_token(both.membership, both.existing, worker_address, datetime.now(UTC))
    token = kept if kept and await _token_works(both, kept) else await clients.create_token(both, lifetime)
    body = membership.kubeconfig_secret(
        both.membership, membership.build_kubeconfig(worker_address, token.value), token.expires_at
    )
    with reporting_errors(MANAGER):
        await membership_objects.apply_object(both.manager, f"{MANAGER} cluster", body, report)
    return token


async def _token_works(both: MembershipClients, token: AccountToken) -> bool:
    """Whether the token still works: that of an account that was deleted, and made again, does not."""
    with reporting_errors(WORKER):
        client = await _account_client(both, token)
        try:
            await client.probe()
        except ApiError as error:
            if error.status != 401:
                raise
            return False
        finally:
            await client.close()
    return True


async def _account_client(both: MembershipClients, token: AccountToken) -> Client:
    """The worker cluster by the account's rights, on the way that this machine takes."""
    return await Client.from_kubeconfig(
        membership.build_kubeconfig(both.worker_address, token.value), both.membership.name
    )


async def _report_legacy_token(both: MembershipClients) -> None:
    """The token that earlier versions made never ends; others may use it, so it is told of, and not deleted."""
    with reporting_errors(WORKER):
        old = await both.worker.find(SECRETS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    if old and annotation(old, _TOKEN_ACCOUNT_ANNOTATION) == names.WORKER_ACCOUNT:
        print(
            f"Secret {names.WORKER_ACCOUNT} of the worker cluster holds a token that never ends, of an earlier installation. If no other manager uses it, "
            f"delete it there: `kubectl -n {names.SYSTEM_NAMESPACE} delete secret {names.WORKER_ACCOUNT}`."
        )


# --- what comes next -------------------------------------------------------------------------------------------------


async def _report_readiness(
    args: argparse.Namespace, both: MembershipClients, token: AccountToken, namespaces: Sequence[str]
) -> int:
    name = both.membership.name
    silent = await common.await_with_hint(_await_connection(both), "Waiting until the controller is connected ...")
    print(f"WorkerCluster {name} is {'joined, but not connected' if silent else 'connected'}.", flush=True)
    failures = [] if silent else await _find_failures(both, token, namespaces)
    for sentence in [*([silent] if silent else ()), *(one.message for one in failures)]:
        print(f"Failure: {sentence}", flush=True)
    for sentence in await _next_steps(args, both, namespaces, inspected=not silent):
        print(f"Next: {sentence}")
    return EXIT_INCOMPLETE if silent or failures else EXIT_OK


async def _await_connection(both: MembershipClients) -> str:
    """Why the controller does not see the cluster after a while, a sentence; empty once it does."""
    deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_SECONDS
    while True:
        with reporting_errors(MANAGER):
            found = await both.manager.get(WORKER_CLUSTERS.path(name=both.membership.name))
        told = condition(found, names.CONNECTED)
        current = told.get("observedGeneration") == meta(found).get("generation")
        if current and told.get("status") == "True":
            return ""
        if asyncio.get_running_loop().time() > deadline:
            said = told.get("message") if current else "the controller has not said anything of it"
            return f"{said or 'the controller gives no reason'}; see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`, and --server of this command."
        await asyncio.sleep(PAUSE_SECONDS)


async def _find_failures(both: MembershipClients, token: AccountToken, namespaces: Sequence[str]) -> list[Finding]:
    """What would keep workers away, as the account itself sees it; a preflight's own words."""
    with reporting_errors(WORKER):
        client = await _account_client(both, token)
    try:
        for _ in range(RIGHTS_ATTEMPTS):
            looked = [await _inspect_namespace(both, client, namespace) for namespace in namespaces]
            found = [one for findings in looked for one in findings if one.outcome == "failure"]
            if not any(one.check == "Rights" for one in found):
                break
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await client.close()
    return list({one.message: one for one in found}.values())


async def _inspect_namespace(both: MembershipClients, client: Client, namespace: str) -> list[Finding]:
    spec = (both.existing.worker_cluster or {}).get("spec") or {}
    head = (spec.get("head") or {}).get("address") or "PodIP"
    scheduler = (spec.get("pods") or {}).get("schedulerName") or ""
    with reporting_errors(MANAGER):
        queues = await run.dispatched_queues(both.manager, namespace)
    side = await inspection.inspect_worker(client, both.membership.name, head, scheduler, namespace, queues)
    return evaluation.evaluate_clusters([side], PreflightOptions(namespace, queues, ""))


async def _next_steps(
    args: argparse.Namespace, both: MembershipClients, namespaces: Sequence[str], *, inspected: bool
) -> list[str]:
    name = both.membership.name
    with reporting_errors(MANAGER):
        policies = membership.policies_naming((await list_all(both.manager, DISPATCH_POLICIES.path()))[0], name)
        unasked = [one for one in namespaces if inspected and await _lacks_queue(both.manager, one)]
    sends = f"DispatchPolicy {', '.join(policies)} sends workers there."
    none = f"No DispatchPolicy names {name} yet: add it to spec.clusters.names of one, unless one selects it by its labels."
    preflight = clients.manager_command(args, "preflight", "--worker-cluster", name, "-n", namespaces[0])
    tries = f"`{preflight}` tries whether pods of both clusters reach each other."
    return [*map(_missing_queue_message, unasked), sends if policies else none, tries]


async def _lacks_queue(manager: Client, namespace: str) -> bool:
    """Whether no queue of a namespace asks our check; not where that may not be read."""
    readable = await inspection.list_if_allowed(manager, LOCAL_QUEUES, namespace) is not None
    return readable and not await run.dispatched_queues(manager, namespace)


def _missing_queue_message(namespace: str) -> str:
    return (
        f"In the manager, namespace {namespace} has no LocalQueue yet whose ClusterQueue lists our AdmissionCheck, so no queue of the worker "
        "cluster was looked at: create one, of the same name in both."
    )


# --- what is only shown ----------------------------------------------------------------------------------------------


def _render_manifests(
    both: MembershipClients, worker_address: ApiServerAddress, namespaces: Sequence[str], lifetime: timedelta
) -> str:
    worker = membership.worker_cluster_objects(
        both.membership,
        membership_objects.account_objects(),
        membership_objects.namespace_binding(),
        namespaces,
        both.existing.service_account,
    )
    text = membership.build_kubeconfig(worker_address, membership.TOKEN_PLACEHOLDER)
    secret = membership.kubeconfig_secret(both.membership, text, datetime.now(UTC) + lifetime)
    del secret["data"], secret["metadata"]["annotations"][names.TOKEN_EXPIRES_ANNOTATION]
    secret["stringData"] = {names.KUBECONFIG_KEY: text}
    hours = int(lifetime.total_seconds()) // 3600
    note = (
        f"# No token was made, and none is shown: {membership.TOKEN_PLACEHOLDER} stands for it. By hand, in the worker cluster:\n"
        f"#   kubectl -n {names.SYSTEM_NAMESPACE} create token {names.WORKER_ACCOUNT} --duration={max(hours, 1)}h\n"
    )
    manager = [secret, membership.worker_cluster_manifest(both.membership.name)]
    return f"# In the worker cluster.\n{_dump_documents(worker)}---\n# In the manager cluster.\n{note}{_dump_documents(manager)}"


def _dump_documents(objects: Sequence[Raw]) -> str:
    return "---\n".join(yaml.dump(one, Dumper=_BlockTextDumper, sort_keys=False) for one in objects)


class _BlockTextDumper(yaml.SafeDumper):
    """A text of several lines stays one."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)
