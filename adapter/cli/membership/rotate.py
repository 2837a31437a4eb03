"""`rayspan rotate`: replace the token in the kubeconfig of a WorkerCluster's Secret.

The controller reconnects by itself, and workers keep running. Exit code 2: nothing was written.
"""

import argparse
from datetime import UTC, datetime

from adapter import membership, names
from adapter.cli.common import EXIT_OK
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import MANAGER, reporting_errors
from adapter.cli.terminal import print_line
from adapter.membership import Membership, MembershipError, MembershipState


def main(args: argparse.Namespace) -> int:
    """Renew the token; return the exit code."""
    return clients.run_reporting_errors(args, _rotate_token(args))


async def _rotate_token(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        _check_renewable(both.membership, both.existing)
        token = await clients.create_token(both, args.expires)
        text = membership.with_token(membership.read_kubeconfig(both.existing.secret), token.value)
        with reporting_errors(MANAGER):
            body = membership.kubeconfig_secret(both.membership, text, token.expires_at)
            await membership_objects.apply_object(both.manager, f"{MANAGER} cluster", body, print_line)
        clients.print_token_expiry(token, args)
        print_line(_old_token_expiry(both.existing))
    return EXIT_OK


def _check_renewable(current: Membership, existing: MembershipState) -> None:
    """Raise `MembershipError` if there is no token to renew, or if the token belongs to another cluster."""
    join_hint, namespace = f"`kubectl rayspan join {current.name}` creates it", names.SYSTEM_NAMESPACE
    problem = membership.identity_problem(current, existing)
    if not problem and not existing.worker_cluster:
        problem = (
            f"There is no WorkerCluster {current.name}; `kubectl get workerclusters` lists those that "
            f"exist, and {join_hint}."
        )
    elif not problem and not existing.service_account:
        problem = f"The worker cluster has no account {names.WORKER_ACCOUNT} in {namespace}; {join_hint}."
    elif not problem and not existing.secret:
        problem = f"There is no Secret {current.name} in {namespace} of the manager; {join_hint}."
    if problem := problem or membership.source_problem(current, existing):
        raise MembershipError(problem)
    try:
        membership.with_token(membership.read_kubeconfig(existing.secret), membership.TOKEN_PLACEHOLDER)
    except MembershipError as error:
        raise MembershipError(
            f"Secret {current.name} in {namespace} cannot be renewed: {error}; {join_hint} again."
        ) from None


def _old_token_expiry(existing: MembershipState) -> str:
    expires_at = membership.token_expires_at(existing.secret)
    if expires_at is None:
        return (
            "It is not recorded when the previous token expires; one that `kubectl rayspan join` "
            "created expires by itself."
        )
    return f"The previous token expires {membership.describe_expiry(expires_at, datetime.now(UTC))}."
