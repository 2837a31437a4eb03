"""How does a share come to its PodGroup: it is created once, or found as an earlier try of ours left it.

It goes with its anchor, by the worker cluster's garbage collection; what it says is not decided here (`podgroup`).
"""

from adapter.objects.raw import Raw, key_of, meta
from adapter.rewrite import podgroup
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.resources import POD_GROUPS


async def ensure(client: Client, body: Raw) -> None:
    """Make a PodGroup, unless it stands; raises ApiError with a sentence when it cannot be had."""
    key = key_of(body)
    try:
        await client.create(POD_GROUPS.path(key[0]), body)
    except ApiError as error:
        taken = error.exists and not _stays(await client.get(POD_GROUPS.path(*key)), body)
        said = "there is another one of that name" if taken else error.message
        if taken or not error.exists:
            raise ApiError(error.status, error.reason, podgroup.refusal(key, error.status, said)) from None


def _stays(found: Raw, body: Raw) -> bool:
    """Whether it goes when this share does: one of somebody else, or of an earlier anchor of this share, may go before."""
    owners = meta(found).get("ownerReferences") or ()
    return meta(body)["ownerReferences"][0] in owners and not meta(found).get("deletionTimestamp")
