"""`rayspan rotate`: give the manager a fresh token of a worker cluster's account.

The kubeconfig in the manager's Secret stays as it is but for the token; the controller connects anew by itself, and what runs goes on.
Exit code 0: it is done; 2: the command line is wrong, and nothing was written; 1: anything else.
"""

import argparse
from datetime import UTC, datetime

from adapter import membership, names
from adapter.cli.common import DONE
from adapter.cli.membership import clients, membership_objects
from adapter.cli.membership.clients import MANAGER, asking
from adapter.membership import Found, Membership, Unusable


def main(given: argparse.Namespace) -> int:
    """Do it and return the exit code; trouble is one sentence on the standard error."""
    return clients.attempt(given, _run(given))


async def _run(given: argparse.Namespace) -> int:
    async with clients.logged_in(given) as both:
        _renewable(both.one, both.found)
        token = await clients.minted(both, given.expires)
        text = membership.renewed(membership.held(both.found.secret), token.value)
        with asking(MANAGER):
            body = membership.secret(both.one, text, token.ends)
            await membership_objects.apply(both.manager, f"{MANAGER} cluster", body, print)
        clients.tell_token(token, given)
        print(_before(both.found))
    return DONE


def _renewable(one: Membership, found: Found) -> None:
    """Raise Unusable where there is nothing to renew, or where it is another cluster's."""
    join, where = f"`kubectl rayspan join {one.name}` makes it", names.SYSTEM_NAMESPACE
    why = membership.not_its_own(one, found)
    if not why and not found.cluster:
        why = f"There is no WorkerCluster {one.name}; `kubectl get workerclusters` lists those there are, and {join}."
    elif not why and not found.account:
        why = f"The worker cluster has no account {names.WORKER_ACCOUNT} in {where}; {join}."
    elif not why and not found.secret:
        why = f"There is no Secret {one.name} in {where} of the manager; {join}."
    if why:
        raise Unusable(why)
    try:
        membership.renewed(membership.held(found.secret), membership.HIDDEN)
    except Unusable as error:
        raise Unusable(f"Secret {one.name} in {where} cannot be renewed: {error}; {join} anew.") from None


def _before(found: Found) -> str:
    last = membership.ends(found.secret)
    if last is None:
        return "When the token before it ends was not noted; one that `kubectl rayspan join` made ends by itself."
    return f"The token before it ends {membership.when(last, datetime.now(UTC))}."
