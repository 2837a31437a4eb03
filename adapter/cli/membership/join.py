"""`rayspan join`: make a cluster a worker cluster of this manager.

In the worker cluster it creates an account with the rights of kustomize/overlays/worker, and an expiring token. In the
manager it creates a Secret with a kubeconfig, and a WorkerCluster. It waits until the controller is connected, then
checks with the account's rights whether workers could run. It is idempotent and resumable. Exit code 2: nothing was
written.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import yaml

from adapter import membership, names
from adapter.admission.cluster_identity import IdentityRecord
from adapter.cli import common
from adapter.cli.common import EXIT_OK
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import EXIT_INCOMPLETE, MANAGER, WORKER, MembershipClients, reporting_errors
from adapter.cli.membership.membership_objects import ReportLine
from adapter.cli.preflight import inspection, run
from adapter.cli.terminal import print_line, print_text
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

# A running controller connects within two seconds; a new leader after an upgrade needs ten.
CONNECT_TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 1.0
RIGHTS_ATTEMPTS = 3  # a new binding takes effect after a moment
_TOKEN_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


def main(args: argparse.Namespace) -> int:
    """Join the cluster; return the exit code."""
    return clients.run_reporting_errors(args, _join_cluster(args))


async def _join_cluster(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        namespaces = _namespaces_to_open(args, both)
        address = await _checked_address(both, args.server, namespaces)
        if args.output:
            print_text(_render_manifests(both, address, namespaces, args.expires))
            return EXIT_OK
        token = await create_login(both, address, namespaces, args.expires, print_line)
        with reporting_errors(MANAGER):
            await membership_objects.apply_object(
                both.manager, f"{MANAGER} cluster", membership.worker_cluster_manifest(args.name), print_line
            )
        clients.print_token_expiry(token, args)
        await _report_legacy_token(both)
        return await _report_readiness(args, both, token, namespaces)


def _namespaces_to_open(args: argparse.Namespace, both: MembershipClients) -> list[str]:
    """Those of the command line; without any, `default` at the first join, and none later."""
    default = [] if membership.has_joined(both.membership, both.existing) else ["default"]
    return list(dict.fromkeys(args.namespace)) or default


async def _checked_address(both: MembershipClients, server: str, namespaces: Sequence[str]) -> ApiServerAddress:
    """The address for the manager's kubeconfig; raise `MembershipError` before anything is written."""
    problem = membership.join_problem(both.membership, both.existing)
    if problem:
        raise MembershipError(problem)
    address = await address_for_manager(both, server)
    is_known = bool(server or membership.joined_address(both.membership, both.existing))
    problem = membership.address_problem(address, explicit=is_known)
    if problem:
        raise MembershipError(problem)
    try:  # parse it as the controller will
        await (
            await kubeconfig.login_of_text(membership.build_kubeconfig(address, membership.TOKEN_PLACEHOLDER))
        ).close()
    except BadLogin as error:
        raise MembershipError(f"The controller would not accept this kubeconfig: {error}.") from None
    with reporting_errors(WORKER):
        for namespace in namespaces:
            if not await both.worker.find(NAMESPACES.path(name=namespace)):
                raise MembershipError(
                    f"There is no namespace {namespace} in the worker cluster: create it, or name another one with -n."
                )
    return address


async def address_for_manager(both: MembershipClients, server: str) -> ApiServerAddress:
    """The address by which the manager reaches the worker cluster.

    It is `server`, or that of an earlier join, or this machine's without its proxy. The endpoint at `server` may have a
    certificate of the cluster's own CA, so the CA is added.
    """
    address = replace(both.worker_address, proxy_url="")
    if not server:
        return membership.joined_address(both.membership, both.existing) or address
    with reporting_errors(WORKER):
        config_map = await both.worker.find(CONFIG_MAPS.path("kube-system", names.ROOT_CA_CONFIG_MAP))
    cluster_ca = str(((config_map or {}).get("data") or {}).get("ca.crt") or "")
    ca_bundle = address.ca_bundle if cluster_ca.strip() in address.ca_bundle else f"{address.ca_bundle}{cluster_ca}"
    return ApiServerAddress(server.rstrip("/"), ca_bundle, verified=address.verified)


async def create_login(
    both: MembershipClients,
    worker_address: ApiServerAddress,
    namespaces: Sequence[str],
    lifetime: timedelta,
    report: ReportLine,
) -> AccountToken:
    """Create the account and the manager's Secret with its kubeconfig; reuse a token that still lasts."""
    account_objects = membership.worker_cluster_objects(
        both.membership,
        membership_objects.account_objects(),
        membership_objects.namespace_binding(),
        namespaces,
    )
    manager = membership.field_manager(both.membership)
    with reporting_errors(WORKER):
        for body in account_objects:
            await membership_objects.apply_object(both.worker, f"{WORKER} cluster", body, report, manager)
    reusable_token = membership.reusable_token(both.membership, both.existing, worker_address, datetime.now(UTC))
    token = (
        reusable_token
        if reusable_token and await _token_works(both, reusable_token)
        else await clients.create_token(both, lifetime)
    )
    body = membership.kubeconfig_secret(
        both.membership, membership.build_kubeconfig(worker_address, token.value), token.expires_at
    )
    with reporting_errors(MANAGER):
        await membership_objects.apply_object(both.manager, f"{MANAGER} cluster", body, report)
    return token


async def _token_works(both: MembershipClients, token: AccountToken) -> bool:
    """Whether the token works: it is invalid if the account was recreated since."""
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
    """A client with the account's rights, by this machine's address of the worker cluster."""
    return await Client.from_kubeconfig(
        membership.build_kubeconfig(both.worker_address, token.value), both.membership.name
    )


async def _report_legacy_token(both: MembershipClients) -> None:
    """Report a never-expiring token of an earlier version; another manager may use it, so it is not deleted."""
    with reporting_errors(WORKER):
        secret = await both.worker.find(SECRETS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT))
    if secret and annotation(secret, _TOKEN_ACCOUNT_ANNOTATION) == names.WORKER_ACCOUNT:
        print_line(
            f"Secret {names.WORKER_ACCOUNT} of the worker cluster holds a token that never expires, "
            "from an earlier installation. If no other manager uses it, delete it there: `kubectl -n "
            f"{names.SYSTEM_NAMESPACE} delete secret {names.WORKER_ACCOUNT}`."
        )


# --- readiness and next steps ----------------------------------------------------------------------------------------


async def _report_readiness(
    args: argparse.Namespace, both: MembershipClients, token: AccountToken, namespaces: Sequence[str]
) -> int:
    name = both.membership.name
    connection_problem = await common.await_with_hint(
        _await_connection(both), "Waiting until the controller is connected ..."
    )
    print_line(f"WorkerCluster {name} is {'joined, but not connected' if connection_problem else 'connected'}.")
    failures = [] if connection_problem else await _find_failures(both, token, namespaces)
    for sentence in [*([connection_problem] if connection_problem else ()), *(failure.message for failure in failures)]:
        print_line(f"Failure: {sentence}")
    for sentence in await _next_steps(args, both, namespaces, inspected=not connection_problem):
        print_line(f"Next: {sentence}")
    return EXIT_INCOMPLETE if connection_problem or failures else EXIT_OK


async def _await_connection(both: MembershipClients) -> str:
    """Wait until the controller is connected; return a sentence that says why it is not, else empty."""
    deadline = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_SECONDS
    while True:
        with reporting_errors(MANAGER):
            cluster = await both.manager.get(WORKER_CLUSTERS.path(name=both.membership.name))
        connected = condition(cluster, names.CONNECTED)
        current = connected.get("observedGeneration") == meta(cluster).get("generation")
        if current and connected.get("status") == "True":
            return ""
        if asyncio.get_running_loop().time() > deadline:
            message = connected.get("message") if current else "the controller has not reported on it"
            return (
                f"{message or 'the controller gives no reason'}; "
                f"see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`, and --server of this command."
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def _find_failures(both: MembershipClients, token: AccountToken, namespaces: Sequence[str]) -> list[Finding]:
    """The preflight's failures, as the account itself observes them."""
    with reporting_errors(WORKER):
        client = await _account_client(both, token)
    try:
        for _ in range(RIGHTS_ATTEMPTS):
            results = [await _inspect_namespace(both, client, namespace) for namespace in namespaces]
            failures = [finding for findings in results for finding in findings if finding.outcome == "failure"]
            if not any(finding.check == "Rights" for finding in failures):
                break
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await client.close()
    return list({finding.message: finding for finding in failures}.values())


async def _inspect_namespace(both: MembershipClients, client: Client, namespace: str) -> list[Finding]:
    spec = (both.existing.worker_cluster or {}).get("spec") or {}
    head = (spec.get("head") or {}).get("address") or "PodIP"
    scheduler = (spec.get("pods") or {}).get("schedulerName") or ""
    with reporting_errors(MANAGER):
        queues = await run.dispatched_queues(both.manager, namespace)
    record = IdentityRecord(both.membership.name)  # membership.join_problem has compared the identities
    side = await inspection.inspect_worker(client, record, head, scheduler, namespace, queues)
    return evaluation.evaluate_clusters([side], PreflightOptions(namespace, queues, ""))


async def _next_steps(
    args: argparse.Namespace, both: MembershipClients, namespaces: Sequence[str], *, inspected: bool
) -> list[str]:
    name = both.membership.name
    with reporting_errors(MANAGER):
        policies = membership.policies_naming((await list_all(both.manager, DISPATCH_POLICIES.path()))[0], name)
        unqueued = [namespace for namespace in namespaces if inspected and await _lacks_queue(both.manager, namespace)]
    named_message = f"DispatchPolicy {', '.join(policies)} sends workers there."
    unnamed_message = (
        f"No DispatchPolicy names {name} yet: "
        "add it to spec.clusters.names of one, unless one selects it by its labels."
    )
    where = ("-n", namespaces[0]) if namespaces else ()
    preflight = clients.manager_command(args, "preflight", "--worker-cluster", name, *where)
    preflight_message = f"`{preflight}` tests whether pods of both clusters reach each other."
    return [*map(_missing_queue_message, unqueued), named_message if policies else unnamed_message, preflight_message]


async def _lacks_queue(manager: Client, namespace: str) -> bool:
    """Whether no queue of the namespace has our check; False when its queues are not readable."""
    readable = await inspection.list_if_allowed(manager, LOCAL_QUEUES, namespace) is not None
    return readable and not await run.dispatched_queues(manager, namespace)


def _missing_queue_message(namespace: str) -> str:
    return (
        f"Namespace {namespace} of the manager has no LocalQueue yet whose ClusterQueue lists "
        "Rayspan's AdmissionCheck, so no queue of the worker cluster was checked: create a "
        "LocalQueue of the same name in both clusters."
    )


# --- -o yaml ---------------------------------------------------------------------------------------------------------


def _render_manifests(
    both: MembershipClients, worker_address: ApiServerAddress, namespaces: Sequence[str], lifetime: timedelta
) -> str:
    worker = membership.worker_cluster_objects(
        both.membership,
        membership_objects.account_objects(),
        membership_objects.namespace_binding(),
        namespaces,
    )
    text = membership.build_kubeconfig(worker_address, membership.TOKEN_PLACEHOLDER)
    secret = membership.kubeconfig_secret(both.membership, text, datetime.now(UTC) + lifetime)
    del secret["data"], secret["metadata"]["annotations"][names.TOKEN_EXPIRES_ANNOTATION]
    secret["stringData"] = {names.KUBECONFIG_KEY: text}
    hours = int(lifetime.total_seconds()) // 3600
    note = (
        f"# No token was made, and none is shown: {membership.TOKEN_PLACEHOLDER} stands for it. "
        "By hand, in the worker cluster:\n"
        f"#   kubectl -n {names.SYSTEM_NAMESPACE} create token {names.WORKER_ACCOUNT} --duration={max(hours, 1)}h\n"
    )
    manager = [secret, membership.worker_cluster_manifest(both.membership.name)]
    return (
        f"# In the worker cluster.\n{_dump_documents(worker)}---\n"
        f"# In the manager cluster.\n{note}{_dump_documents(manager)}"
    )


def _dump_documents(objects: Sequence[Raw]) -> str:
    return "---\n".join(yaml.dump(body, Dumper=_BlockTextDumper, sort_keys=False) for body in objects)


class _BlockTextDumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)
