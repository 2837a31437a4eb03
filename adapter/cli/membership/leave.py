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
from adapter.cli.common import DONE, complain
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import MANAGER, NOT_YET, WORKER, Sides, Trouble, asking
from adapter.membership import Unusable
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.shell.kube.pagination import listed
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
PATIENCE_SECONDS = 60.0  # until a namespace is gone with what was in it; ten on a busy machine
# What the controller makes there: a job's last pod gives back its quota, then its anchor goes with all that hangs on it.
_MADE = {"pod": PODS, "workload": WORKLOADS, "configmap": CONFIG_MAPS}

# What tells that a namespace is used for more than the account, and what stands in it in any case.
_OF_OTHERS = {
    "deployment": DEPLOYMENTS,
    "pod": PODS,
    "secret": SECRETS,
    "configmap": CONFIG_MAPS,
    "serviceaccount": SERVICE_ACCOUNTS,
}
_OF_ACCOUNT = {
    ("serviceaccount", "default"),
    ("serviceaccount", names.WORKER_ACCOUNT),
    ("secret", names.WORKER_ACCOUNT),  # its token of an earlier version
    ("configmap", names.ROOT_AUTHORITY),
    ("configmap", "openshift-service-ca.crt"),
}


def main(given: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.attempt(given, _run(given))


async def _run(given: argparse.Namespace) -> int:
    async with clients.logged_in(given) as both:
        why = membership.not_its_own(both.one, both.found)
        if why:
            raise Unusable(why)
        made = await _made(both)
        print(_announced(both, made), flush=True)
        try:
            async with asyncio.timeout(given.timeout.total_seconds() or None):
                code = await _emptied(both)
        except TimeoutError:
            return complain(f"The time is up, and workers are left. {_goes_on(given.name)}", NOT_YET)
        if code != DONE:
            return code
        await _forgotten(both)
        await _removed(both, made)
        await _tell_what_stays(both)
    print(f"{given.name} has left.")
    return DONE


async def _made(both: Sides) -> list[Raw]:
    """What there is to be deleted in the worker cluster, in that order: the account late, for it tells whose all this is."""
    if membership.others(both.one, both.found.account):
        return []
    with asking(WORKER):
        bindings = [one for one in (await listed(both.worker, ROLE_BINDINGS.path()))[0] if membership.opens(one)]
        added = [
            role for name in membership.REACH_ROLES if (role := await both.worker.find(CLUSTER_ROLES.path(name=name)))
        ]
    last = [
        one for one in reversed(membership_objects.account()) if one["kind"] != "Namespace" or not await _shared(both)
    ]
    kinds = (("RoleBinding", bindings), ("ClusterRole", added))
    return [*({**one, "kind": kind} for kind, found in kinds for one in found), *last]


async def _shared(both: Sides) -> bool:
    """Whether anybody else's things stand in the namespace of the account: in a cluster that is a manager as well, its controller and
    its logins do."""
    with asking(WORKER):
        for kind, resource in _OF_OTHERS.items():
            for one in (await listed(both.worker, resource.path(names.SYSTEM_NAMESPACE)))[0]:
                if (kind, key_of(one)[1]) not in _OF_ACCOUNT:
                    return True
    return False


def _announced(both: Sides, made: Sequence[Raw]) -> str:
    name = both.one.name
    first = f"{name} leaves. When its last worker is gone, these are deleted:"
    manager = f"  in the manager cluster: workercluster/{name}, secret/{name}"
    worker = (
        ", ".join(map(membership_objects.called, made))
        or f"nothing, for other managers use its account; {name} is taken off its list"
    )
    return "\n".join([first, manager, f"  in the worker cluster: {worker}"])


# --- first its workers -----------------------------------------------------------------------------------------------


async def _emptied(both: Sides) -> int:
    """Keep new workers away, and wait until the last one and what was made for it are gone."""
    if both.found.cluster is None:
        return DONE
    with asking(MANAGER):
        await cordon.changed(both.manager, both.one.name, {"cordoned": True, "draining": True})
        code = await drain.Watch(both.manager, both.one.name).run()
    if code != DONE:
        return code
    told = ""
    while left := await _left(both) or await _held(both):
        if left != told:
            print(f"Waiting until the controller has removed {left} ...", flush=True)
        told = left
        await asyncio.sleep(PAUSE_SECONDS)
    return DONE


async def _left(both: Sides) -> str:
    """What there is of this manager's jobs in the worker cluster, a part of a sentence; empty when there is nothing."""
    with asking(WORKER):
        found = {
            kind: await listed(both.worker, place.path(), labelSelector=_ours(both)) for kind, place in _MADE.items()
        }
    counts = {kind: len(objects) for kind, (objects, _) in found.items()}
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count)


async def _held(both: Sides) -> str:
    """The quota that the WorkerCluster still tells of, as long as the API server refuses to delete it for that."""
    with asking(MANAGER):
        cluster = await both.manager.get(WORKER_CLUSTERS.path(name=both.one.name))
    held = (cluster.get("status") or {}).get("workers") or 0
    return f"the quota of {held} worker{'' if held == 1 else 's'}" if held else ""


def _ours(both: Sides) -> str:
    return f"{names.MANAGER_LABEL}={both.one.manager},{names.CLUSTER_LABEL}={both.one.name}"


# --- then the membership ---------------------------------------------------------------------------------------------


async def _forgotten(both: Sides) -> None:
    """Delete what the manager has: first what the controller goes by, then the login."""
    with asking(MANAGER):
        for body in (membership.worker_cluster(both.one.name), _secret(both.one.name)):
            await membership_objects.remove(both.manager, f"{MANAGER} cluster", body, _tell)


def _secret(name: str) -> Raw:
    return {"kind": "Secret", "metadata": {"namespace": names.SYSTEM_NAMESPACE, "name": name}}


async def _removed(both: Sides, made: Sequence[Raw]) -> None:
    with asking(WORKER):
        if not made:
            await _signed_off(both)
        for body in made:
            await membership_objects.remove(both.worker, f"{WORKER} cluster", body, _tell)
        if any(body["kind"] == "Namespace" for body in made):
            await _gone(both)
        elif made:
            print(
                f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster stays, for it holds other things than the account."
            )


async def _signed_off(both: Sides) -> None:
    """Only take the name off the account: others use it. The token that was deleted with the Secret ends by itself."""
    key = f"{names.JOINED_PREFIX}{both.one.manager}"
    path = SERVICE_ACCOUNTS.path(names.SYSTEM_NAMESPACE, names.WORKER_ACCOUNT)
    patch = {"metadata": {"uid": uid_of(both.found.account or {}), "annotations": {key: None}}}
    await both.worker.merge(path, patch)
    print(
        "The account of the worker cluster stays, for other managers use it; a copy of this manager's token is good until it ends."
    )


async def _gone(both: Sides) -> None:
    """Wait until the namespace has ended, so that the cluster can join again at once."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while await both.worker.find(NAMESPACES.path(name=names.SYSTEM_NAMESPACE)):
        if asyncio.get_running_loop().time() > deadline:
            raise Trouble(
                f"Namespace {names.SYSTEM_NAMESPACE} of the worker cluster is deleted, and has not ended after {PATIENCE_SECONDS:.0f} s: "
                "see what is left in it. The same command goes on."
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def _tell_what_stays(both: Sides) -> None:
    if both.found.cluster is None and (left := await _left(both)):  # it was deleted by force, and nobody removes these
        print(
            f"Left in the worker cluster: {left}. Delete them there: `kubectl delete pods,workloads,configmaps -A -l {_ours(both)}`."
        )
    with asking(MANAGER):
        policies = membership.naming((await listed(both.manager, DISPATCH_POLICIES.path()))[0], both.one.name)
    if policies:
        print(
            f"Next: DispatchPolicy {', '.join(policies)} still names {both.one.name}; take it out of spec.clusters.names."
        )


def _tell(line: str) -> None:
    print(line, flush=True)


def _goes_on(name: str) -> str:
    return f"Nothing was deleted; {name} goes on draining. The same command goes on, and `kubectl rayspan uncordon {name}` takes it back."
