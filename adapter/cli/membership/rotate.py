"""`rayspan rotate`: give the manager a fresh token of a worker cluster's account.

The kubeconfig in the manager's Secret stays as it is but for the token; the controller connects anew by itself, and what runs goes on.
Exit code 0: it is done; 2: the command line is wrong, and nothing was written; 1: anything else.
"""

import argparse
from datetime import UTC, datetime

from adapter import membership, names
from adapter.cli.common import EXIT_OK
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import MANAGER, reporting_errors
from adapter.membership import Membership, MembershipError, MembershipState


def main(args: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.run_reporting_errors(args, _rotate_token(args))


async def _rotate_token(args: argparse.Namespace) -> int:
    async with clients.open_clients(args) as both:
        _check_renewable(both.membership, both.existing)
        token = await clients.create_token(both, args.expires)
        text = membership.with_token(membership.read_kubeconfig(both.existing.secret), token.value)
        with reporting_errors(MANAGER):
            body = membership.kubeconfig_secret(both.membership, text, token.expires_at)
            await membership_objects.apply_object(both.manager, f"{MANAGER} cluster", body, print)
        clients.print_token_expiry(token, args)
        print(_old_token_expiry(both.existing))
    return EXIT_OK


def _check_renewable(current: Membership, existing: MembershipState) -> None:
    """Raise Unusable where there is nothing to renew, or where it is another cluster's."""
    join, where = f"`kubectl rayspan join {current.name}` makes it", names.SYSTEM_NAMESPACE
    why = membership.identity_problem(current, existing)
    if not why and not existing.worker_cluster:
        why = (
            f"There is no WorkerCluster {current.name}; `kubectl get workerclusters` lists those there are, and {join}."
        )
    elif not why and not existing.service_account:
        why = f"The worker cluster has no account {names.WORKER_ACCOUNT} in {where}; {join}."
    elif not why and not existing.secret:
        why = f"There is no Secret {current.name} in {where} of the manager; {join}."
    if why:
        raise MembershipError(why)
    try:
        membership.with_token(membership.read_kubeconfig(existing.secret), membership.TOKEN_PLACEHOLDER)
    except MembershipError as error:
        raise MembershipError(f"Secret {current.name} in {where} cannot be renewed: {error}; {join} anew.") from None


def _old_token_expiry(existing: MembershipState) -> str:
    last = membership.token_expires_at(existing.secret)
    if last is None:
        return "When the token before it ends was not noted; one that `kubectl rayspan join` made ends by itself."
    return f"The token before it ends {membership.describe_expiry(last, datetime.now(UTC))}."
