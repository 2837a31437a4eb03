"""`rayspan leave`: a cluster is no worker of this manager any more, and nothing of the membership is left on either side.

First its workers leave, as in a drain; nothing is deleted before the last one is gone. Then go the WorkerCluster and the Secret, and last
the account of the worker cluster with all that it was given. It asks nobody for a yes, as no verb of kubectl does: what may be lost, the
workers, is waited for; all else is made again by `join`, and the right to logs and commands by who gave it. It may be stopped, or die, at
any point: the same command goes on. Exit code 0: nothing is left; 3: it is not empty yet, and nothing was deleted; 2: the command line is
wrong; 1: anything else.
"""

import argparse
import asyncio
from collections.abc import Sequence

from adapter import membership, names
from adapter.cli import cordon, drain
from adapter.cli.common import EXIT_OK, print_error
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import (
    EXIT_INCOMPLETE,
    MANAGER,
    WORKER,
    ClusterError,
    MembershipClients,
    reporting_errors,
)
from adapter.membership import MembershipError
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISPATCH_POLICIES,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKER_CLUSTERS,
    WORKLOADS,
)

PAUSE_SECONDS = 2.0  # between two looks at what is left in the worker cluster; who waits sees no delay
NAMESPACE_TIMEOUT_SECONDS = 60.0  # until a namespace is gone with what was in it; ten on a busy machine
# What the controller makes there: a job's last pod gives back its quota, then its anchor goes with all that hangs on it.
_CONTROLLER_RESOURCES = {"pod": PODS, "workload": WORKLOADS, "configmap": CONFIG_MAPS}

# What tells that a namespace is used for more than the account, and what stands in it in any case.
_NAMESPACE_RESOURCES = {
    "deployment": DEPLOYMENTS,
    "pod": PODS,
    "secret": SECRETS,
    "configmap": CONFIG_MAPS,
    "serviceaccount": SERVICE_ACCOUNTS,
}
_ACCOUNT_OBJECTS = {
    ("serviceaccount", "default"),
    ("serviceaccount", names.WORKER_ACCOUNT),
    ("secret", names.WORKER_ACCOUNT),  # its token of an earlier version
    ("configmap", names.ROOT_CA_CONFIG_MAP),
    ("configmap", "openshift-service-ca.crt"),
}


def main(args: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.run_reporting_errors(args, _leave_manager(args))


async def _leave_manager(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        why = membership.identity_problem(both.membership, both.existing)
        if why:
            raise MembershipError(why)
        made = await _objects_to_delete(both)
        print(_deletion_notice(both, made), flush=True)
        try:
            async with asyncio.timeout(args.timeout.total_seconds() or None):
                code = await _wait_until_empty(both)
        except TimeoutError:
            return print_error(f"The time is up, and workers are left. {_resume_hint(args.name)}", EXIT_INCOMPLETE)
        if code != EXIT_OK:
            return code
        await _delete_from_manager(both)
        await _delete_from_worker(both, made)
        await _report_leftovers(both)
    print(f"{args.name} has left.")
    return EXIT_OK


async def _objects_to_delete(both: MembershipClients) -> list[Raw]:
    """What there is to be deleted in the worker cluster, in that order: the account late, for it tells whose all this is."""
    if membership.other_managers(both.membership, both.existing.service_account):
        return []
    with reporting_errors(WORKER):
        bindings = [
            one
            for one in (await list_all(both.worker, ROLE_BINDINGS.path()))[0]
            if membership.is_namespace_binding(one)
        ]
        added = [
            role for name in membership.REACH_ROLES if (role := await both.worker.find(CLUSTER_ROLES.path(name=name)))
        ]
    last = [
        one
        for one in reversed(membership_objects.account_objects())
        if one["kind"] != "Namespace" or not await _has_other_objects(both)
    ]
    kinds = (("RoleBinding", bindings), ("ClusterRole", added))
    return [*({**one, "kind": kind} for kind, found in kinds for one in found), *last]


async def _has_other_objects(both: MembershipClients) -> bool:
    """Whether anybody else's things stand in the namespace of the account: in a cluster that is a manager as well, its controller and
    its logins do."""
    with reporting_errors(WORKER):
        for kind, resource in _NAMESPACE_RESOURCES.items():
            for one in (await list_all(both.worker, resource.path(names.SYSTEM_NAMESPACE)))[0]:
                if (kind, key_of(one)[1]) not in _ACCOUNT_OBJECTS:
                    return True
    return False


def _deletion_notice(both: MembershipClients, objects: Sequence[Raw]) -> str:
    name = both.membership.name
    first = f"{name} leaves. When its last worker is gone, these are deleted:"
    manager = f"  in the manager cluster: workercluster/{name}, secret/{name}"
    worker = (
        ", ".join(map(membership_objects.display_name, objects))
        or f"nothing, for other managers use its account; {name} is taken off its list"
    )
    return "\n".join([first, manager, f"  in the worker cluster: {worker}"])


# --- first its workers -----------------------------------------------------------------------------------------------


async def _wait_until_empty(both: MembershipClients) -> int:
    """Keep new workers away, and wait until the last one and what was made for it are gone."""
    if both.existing.worker_cluster is None:
        return EXIT_OK
    with reporting_errors(MANAGER):
        await cordon.patch_spec(both.manager, both.membership.name, {"cordoned": True, "draining": True})
        code = await drain.DrainWatch(both.manager, both.membership.name).run()
    if code != EXIT_OK:
        return code
    told = ""
    while left := await _remaining_objects(both) or await _remaining_quota(both):
        if left != told:
            print(f"Waiting until the controller has removed {left} ...", flush=True)
        told = left
        await asyncio.sleep(PAUSE_SECONDS)
    return EXIT_OK


async def _remaining_objects(both: MembershipClients) -> str:
    """What there is of this manager's jobs in the worker cluster, a part of a sentence; empty when there is nothing."""
    with reporting_errors(WORKER):
        found = {
            kind: await list_all(both.worker, place.path(), labelSelector=_owner_selector(both))
            for kind, place in _CONTROLLER_RESOURCES.items()
        }
    counts = {kind: len(objects) for kind, (objects, _) in found.items()}
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count)


async def _remaining_quota(both: MembershipClients) -> str:
    """The quota that the WorkerCluster still tells of, as long as the API server refuses to delete it for that."""
    with reporting_errors(MANAGER):
        cluster = await both.manager.get(WORKER_CLUSTERS.path(name=both.membership.name))
    held = (cluster.get("status") or {}).get("workers") or 0
    return f"the quota of {held} worker{'' if held == 1 else 's'}" if held else ""


def _owner_selector(both: MembershipClients) -> str:
    return f"{names.MANAGER_LABEL}={both.membership.manager_identity},{names.CLUSTER_LABEL}={both.membership.name}"


# --- then the membership ---------------------------------------------------------------------------------------------


async def _delete_from_manager(both: MembershipClients) -> None:
    """Delete what the manager has: first what the controller goes by, then the login."""
    with reporting_errors(MANAGER):
        for body in (membership.worker_cluster_manifest(both.membership.name), _secret_reference(both.membership.name)):
            await membership_objects.delete_object(both.manager, f"{MANAGER} cluster", body, _print_line)


def _secret_reference(name: str) -> Raw:
    return {"kind": "Secret", "metadata": {"namespace": names.SYSTEM_NAMESPACE, "name": name}}


async def _delete_from_worker(both: MembershipClients, objects: Sequence[Raw]) -> None:
    with reporting_errors(WORKER):
        if not objects:
            await _remove_join_annotation(both)
        for body in objects:
            await membership_objects.delete_object(both.worker, f"{WORKER} cluster", body, _print_line)
        if any(body["kind"] == "Namespace" for body in objects):
            await _await_namespace_deletion(both)
        elif objects:
            print(
                f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster stays, for it holds other things than the account."
            )


async def _remove_join_annotation(both: MembershipClients) -> None:
    """Only take the name off the account: others use it. The token that was deleted with the Secret ends by itself."""
    key = f"{names.JOINED_PREFIX}{both.membership.manager_identity}"
    path = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT)
    patch = {"metadata": {"uid": uid_of(both.existing.service_account or {}), "annotations": {key: None}}}
    await both.worker.merge_patch(path, patch)
    print(
        "The account of the worker cluster stays, for other managers use it; a copy of this manager's token is good until it ends."
    )


async def _await_namespace_deletion(both: MembershipClients) -> None:
    """Wait until the namespace has ended, so that the cluster can join again at once."""
    deadline = asyncio.get_running_loop().time() + NAMESPACE_TIMEOUT_SECONDS
    while await both.worker.find(NAMESPACES.path(name=names.SYSTEM_NAMESPACE)):
        if asyncio.get_running_loop().time() > deadline:
            raise ClusterError(
                f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster is deleted, and has not ended after {NAMESPACE_TIMEOUT_SECONDS:.0f} s: "
                "see what is left in it. The same command goes on."
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def _report_leftovers(both: MembershipClients) -> None:
    if both.existing.worker_cluster is None and (
        left := await _remaining_objects(both)
    ):  # it was deleted by force, and nobody removes these
        print(
            f"Left in the worker cluster: {left}. Delete them there: `kubectl delete pods,workloads,configmaps -A -l {_owner_selector(both)}`."
        )
    with reporting_errors(MANAGER):
        policies = membership.policies_naming(
            (await list_all(both.manager, DISPATCH_POLICIES.path()))[0], both.membership.name
        )
    if policies:
        print(
            f"Next: DispatchPolicy {', '.join(policies)} still names {both.membership.name}; take it out of spec.clusters.names."
        )


def _print_line(line: str) -> None:
    print(line, flush=True)


def _resume_hint(name: str) -> str:
    return f"Nothing was deleted; {name} goes on draining. The same command goes on, and `kubectl rayspan uncordon {name}` takes it back."
