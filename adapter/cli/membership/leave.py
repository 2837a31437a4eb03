"""`rayspan leave`: end the membership of a worker cluster, and delete its objects in both clusters.

Nothing is deleted before the cluster is drained. Then it deletes the WorkerCluster and the Secret, and last the account
in the worker cluster with its roles and bindings. It needs no confirmation: `join` recreates all but the roles for logs
and commands. It can be interrupted at any point and run again.
"""

import argparse
import asyncio
from collections.abc import Sequence

from adapter import membership, names
from adapter.cli import cordon, drain
from adapter.cli.common import EXIT_OK, join_lines, print_error
from adapter.cli.membership import clients, membership_objects, namespace_contents
from adapter.cli.membership.clients import (
    EXIT_INCOMPLETE,
    MANAGER,
    WORKER,
    ClusterError,
    MembershipClients,
    reporting_errors,
)
from adapter.cli.terminal import print_line, print_text
from adapter.membership import MembershipError
from adapter.objects.unstructured import Raw, annotation, key_of, meta, uid_of
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DISPATCH_POLICIES,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    WORKER_CLUSTERS,
    WORKLOADS,
)

PAUSE_SECONDS = 2.0  # between polls of the worker cluster
NAMESPACE_TIMEOUT_SECONDS = 60.0  # to delete a namespace and its contents; a busy machine needs ten
# The kinds of the controller's objects in the worker cluster. When a job's last pod ends, its quota is free; then its
# anchors are deleted with their dependents.
_CONTROLLER_RESOURCES = {"pod": PODS, "workload": WORKLOADS, "configmap": CONFIG_MAPS}

_ACCOUNT_PATH = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT)


def main(args: argparse.Namespace) -> int:
    """Drain the cluster, delete the membership, and return the exit code."""
    return clients.run_reporting_errors(args, _leave_manager(args))


async def _leave_manager(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        problem = membership.identity_problem(both.membership, both.existing)
        if problem:
            raise MembershipError(problem)
        objects = await _objects_to_delete(both)
        print_text(_deletion_notice(both, objects))
        try:
            async with asyncio.timeout(args.timeout.total_seconds() or None):
                code = await _wait_until_empty(both)
        except TimeoutError:
            return print_error(
                f"The timeout has passed, and workers remain. {_resume_hint(args.name)}", EXIT_INCOMPLETE
            )
        if code != EXIT_OK:
            return code
        await _delete_from_manager(both)
        await _delete_from_worker(both, objects)
        await _report_leftovers(both)
    print_line(f"{args.name} has left.")
    return EXIT_OK


async def _objects_to_delete(both: MembershipClients) -> list[Raw]:
    """The worker cluster's objects in order of deletion; none while other managers use the account.

    The account comes first: its deletion is the one that a manager which joins meanwhile can prevent.
    """
    if membership.other_managers(both.membership, both.existing.service_account):
        return []
    with reporting_errors(WORKER):
        bindings = [
            binding
            for binding in (await list_all(both.worker, ROLE_BINDINGS.path()))[0]
            if membership.is_namespace_binding(binding)
        ]
        reach_roles = [
            role for name in membership.REACH_ROLES if (role := await both.worker.find(CLUSTER_ROLES.path(name=name)))
        ]
    *account_objects, namespace = reversed(membership_objects.account_objects())
    kinds = (("RoleBinding", bindings), ("ClusterRole", reach_roles))
    objects = [*({**body, "kind": kind} for kind, bodies in kinds for body in bodies), *account_objects]
    if not await _namespace_retention(both, objects):
        objects.append(namespace)
    return sorted(objects, key=lambda body: body["kind"] != "ServiceAccount")


async def _namespace_retention(both: MembershipClients, objects: Sequence[Raw]) -> str:
    """Why the account's namespace is kept when these objects are deleted; empty if it is deleted as well."""
    in_namespace = [body for body in objects if key_of(body)[0] == names.SYSTEM_NAMESPACE]
    with reporting_errors(WORKER):
        return await namespace_contents.retention_reason(both.worker, in_namespace)


def _deletion_notice(both: MembershipClients, objects: Sequence[Raw]) -> str:
    name = both.membership.name
    first = f"{name} leaves. When its last worker is gone, these are deleted:"
    manager = f"  in the manager cluster: workercluster/{name}, secret/{name}"
    worker = (
        ", ".join(map(membership_objects.display_name, objects))
        or f"nothing, because other managers use its account; {name} is removed from its list"
    )
    return join_lines([first, manager, f"  in the worker cluster: {worker}"])


# --- drain -----------------------------------------------------------------------------------------------------------


async def _wait_until_empty(both: MembershipClients) -> int:
    """Drain the cluster, and wait until its last worker and the objects created for it are deleted."""
    if both.existing.worker_cluster is None:
        return EXIT_OK
    with reporting_errors(MANAGER):
        await cordon.patch_spec(both.manager, both.membership.name, {"cordoned": True, "draining": True})
        code = await drain.DrainWatch(both.manager, both.membership.name).run()
    if code != EXIT_OK:
        return code
    reported = ""
    while remaining := await _remaining_objects(both) or await _remaining_quota(both):
        if remaining != reported:
            print_line(f"Waiting until the controller has removed {remaining} ...")
        reported = remaining
        await asyncio.sleep(PAUSE_SECONDS)
    return EXIT_OK


async def _remaining_objects(both: MembershipClients) -> str:
    """A clause on the objects of this manager's jobs in the worker cluster; empty when there are none."""
    with reporting_errors(WORKER):
        lists = {
            kind: await list_all(both.worker, resource.path(), labelSelector=_owner_selector(both))
            for kind, resource in _CONTROLLER_RESOURCES.items()
        }
    counts = {kind: len(objects) for kind, (objects, _) in lists.items()}
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count)


async def _remaining_quota(both: MembershipClients) -> str:
    """A clause on the quota that the WorkerCluster's status still counts, which blocks its deletion; else empty."""
    with reporting_errors(MANAGER):
        cluster = await both.manager.get(WORKER_CLUSTERS.path(name=both.membership.name))
    workers = (cluster.get("status") or {}).get("workers") or 0
    return f"the quota of {workers} worker{'' if workers == 1 else 's'}" if workers else ""


def _owner_selector(both: MembershipClients) -> str:
    return f"{names.MANAGER_LABEL}={both.membership.manager_identity},{names.CLUSTER_LABEL}={both.membership.name}"


# --- delete the membership -------------------------------------------------------------------------------------------


async def _delete_from_manager(both: MembershipClients) -> None:
    """Delete the WorkerCluster, on which the controller acts, and then the Secret with its login."""
    with reporting_errors(MANAGER):
        for body in (membership.worker_cluster_manifest(both.membership.name), _secret_reference(both.membership.name)):
            await membership_objects.delete_object(both.manager, f"{MANAGER} cluster", body, print_line)


def _secret_reference(name: str) -> Raw:
    return {"kind": "Secret", "metadata": {"namespace": names.SYSTEM_NAMESPACE, "name": name}}


async def _delete_from_worker(both: MembershipClients, objects: Sequence[Raw]) -> None:
    with reporting_errors(WORKER):
        if objects and await _delete_account(both):
            await _delete_account_objects(both)
        else:
            await _remove_join_annotation(both)


async def _delete_account(both: MembershipClients) -> bool:
    """Delete the account unless another manager uses it now; False if one does.

    A manager that joins writes the account first. So the account is read after the drain, which may have taken hours,
    and is deleted in the version that was read. A finalizer may keep it after that.
    """
    while (account := await both.worker.find(_ACCOUNT_PATH)) and not meta(account).get("deletionTimestamp"):
        if membership.other_managers(both.membership, account):
            return False
        if await both.worker.delete(_ACCOUNT_PATH, uid_of(account), str(meta(account).get("resourceVersion") or "")):
            print_line(f"{WORKER} cluster: serviceaccount/{names.WORKER_ACCOUNT} deleted")
    return True


async def _delete_account_objects(both: MembershipClients) -> None:
    """Delete what the account leaves behind, as it is now; stop when a manager has created the account again."""
    objects = [body for body in await _objects_to_delete(both) if body["kind"] != "ServiceAccount"]
    for body in objects:
        if await both.worker.find(_ACCOUNT_PATH):
            print_line(
                "Another manager joins the worker cluster now, so the other objects of the account are kept there. "
                "If its `kubectl rayspan join` reports missing rights, run that again."
            )
            return
        if body["kind"] == "Namespace" and (reason := await _namespace_retention(both, objects)):
            break  # another object was created meanwhile
        await membership_objects.delete_object(both.worker, f"{WORKER} cluster", body, print_line)
    else:
        if any(body["kind"] == "Namespace" for body in objects):
            await _await_namespace_deletion(both)
            return
        reason = await _namespace_retention(both, objects) or "it held other objects until now"
    print_line(f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster is kept, because {reason}.")


async def _remove_join_annotation(both: MembershipClients) -> None:
    """Remove this manager from the account, because other managers use it.

    The deleted Secret's token expires by itself.
    """
    key = f"{names.JOINED_PREFIX}{both.membership.manager_identity}"
    account = await both.worker.find(_ACCOUNT_PATH) or {}
    if annotation(account, key):
        patch = {"metadata": {"uid": uid_of(account), "annotations": {key: None}}}
        await both.worker.merge_patch(_ACCOUNT_PATH, patch)
    print_line(
        "The account in the worker cluster is kept, because other managers use it. A copy of "
        "this manager's token stays valid until it expires."
    )


async def _await_namespace_deletion(both: MembershipClients) -> None:
    """Wait until the namespace is deleted, so that the cluster can join again at once."""
    deadline = asyncio.get_running_loop().time() + NAMESPACE_TIMEOUT_SECONDS
    while await both.worker.find(NAMESPACES.path(name=names.SYSTEM_NAMESPACE)):
        if asyncio.get_running_loop().time() > deadline:
            raise ClusterError(
                f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster is being deleted, and still "
                f"exists after {NAMESPACE_TIMEOUT_SECONDS:.0f} s: see what is left in it, and run the "
                "same command again."
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def _report_leftovers(both: MembershipClients) -> None:
    # After a forced deletion of the WorkerCluster the controller does not delete its remaining objects.
    if both.existing.worker_cluster is None and (remaining := await _remaining_objects(both)):
        print_line(
            f"Still in the worker cluster: {remaining}. Delete them there: `kubectl delete "
            f"pods,workloads,configmaps -A -l {_owner_selector(both)}`."
        )
    with reporting_errors(MANAGER):
        policies = membership.policies_naming(
            (await list_all(both.manager, DISPATCH_POLICIES.path()))[0], both.membership.name
        )
    if policies:
        print_line(
            f"Next: DispatchPolicy {', '.join(policies)} still names {both.membership.name}; "
            "take it out of spec.clusters.names."
        )


def _resume_hint(name: str) -> str:
    return (
        f"Nothing was deleted, and {name} continues to drain. Run the same command again to "
        f"continue; `kubectl rayspan uncordon {name}` stops the drain."
    )
