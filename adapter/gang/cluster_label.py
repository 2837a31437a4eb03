"""The label of a job that names the worker clusters in which it has workers, for `kubectl get -L rayspan.dev/clusters`.

`east_west`: no cluster's name has an underscore. A label has at most 63 characters; names that do not fit are counted:
`east_west_3-more`.
"""

from collections.abc import Iterable

from adapter.objects.placement import Placement

_MAX_LENGTH = 63
_SEPARATOR = "_"


def placed_clusters(placement: Placement) -> frozenset[str]:
    """The clusters of the shares that the job runs with; a round that is not placed may be withdrawn yet."""
    return frozenset(
        share.cluster
        for share in placement.active_shares
        if share.single_worker or placement.round_of(share) <= placement.placed_round
    )


def label_value(clusters: Iterable[str]) -> str:
    """The label's value, which is empty without clusters."""
    ordered = sorted(clusters)
    for count in range(len(ordered), 0, -1):
        more = [f"{len(ordered) - count}-more"] if count < len(ordered) else []
        value = _SEPARATOR.join((*ordered[:count], *more))
        if len(value) <= _MAX_LENGTH:
            return value
    return f"{len(ordered)}-clusters" if ordered else ""
