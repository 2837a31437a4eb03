"""Which sentence does a person read of a gang: on its check, on its Placement, and on the job that its user looks at?

The functions for a Placement return the status to write, complete but for what a later state adds. A reason to wait and a status
that stand there already are not written again, so a gang that only waits costs no writes. What is to be said when is decided
elsewhere.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, SetCheck, UpdatePlacementStatus
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Placement, PlacementState, Share, describe_shares
from adapter.objects.reason import Reason, clause, sentence
from adapter.objects.unstructured import MAX_ITEM_LENGTH, condition, format_time, truncate, updated_condition
from adapter.objects.workload import Workload

PlacementStatus = dict[str, object]
Code = names.ReasonCode | names.ConditionReason

_MAX_WHERE_LENGTH = 2_048


def waiting_status(placement: Placement, now: datetime) -> PlacementStatus:
    """Nothing is reserved; the plan's own explanation says what is short where."""
    return _build_status(
        placement, PlacementState.WAITING, placement.explanation, now, admitted_shares=(), code=placement.code
    )


def no_quota_status(placement: Placement, now: datetime) -> PlacementStatus:
    """An elastic job that holds none of the manager's quota now; its Placement waits for its next attempt."""
    text, code = "The job holds no quota in the manager cluster now.", names.ReasonCode.NO_MANAGER_QUOTA
    return _build_status(placement, PlacementState.WAITING, text, now, admitted_shares=(), code=code)


def reason_by_cluster(blocked: Mapping[Share, Reason]) -> dict[str, str]:
    """What keeps shares from being admitted, by cluster: of several reasons there the first."""
    found = dict[str, str]()
    for share, reason in blocked.items():
        found[share.cluster] = found.get(share.cluster) or reason.text
    return found


def reserving_status(placement: Placement, blocked: Mapping[Share, Reason], now: datetime) -> PlacementStatus:
    """Shares are asked for, some are not admitted yet."""
    held = [share for share in placement.shares if share not in blocked]
    parts = [f"{cluster}: {why}" for cluster, why in reason_by_cluster(blocked).items() if why]
    reason = "; ".join(
        [
            f"{placement.lost_reason and f'{placement.lost_reason} '}Reserving quota for workers: {describe_placement(placement)}",
            *parts,
        ]
    )
    code = first_code(blocked.values())
    return _build_status(placement, PlacementState.RESERVING, sentence(reason), now, admitted_shares=held, code=code)


def placed_status(placement: Placement, now: datetime, message: str = "") -> PlacementStatus:
    """Every share is admitted; what is `told` of it, by default the plan's own explanation."""
    status = _build_status(
        placement, PlacementState.PLACED, message or placement.explanation, now, admitted_shares=placement.shares
    )
    return {**status, "placedRound": placement.round}


def degraded_status(
    placement: Placement, blocked: Mapping[str, Reason], unreachable: Mapping[str, str], now: datetime
) -> PlacementStatus:
    """The job runs, but a share of it is not admitted any more, or cannot be seen."""
    held = [s for s in placement.shares if s.cluster not in blocked]
    state = PlacementState.UNKNOWN if any(cluster in unreachable for cluster in blocked) else PlacementState.PLACED
    parts = [
        f"what runs in {cluster} is left running: {clause(reason.text)}"
        if cluster in unreachable
        else f"the share in {cluster} is not admitted now{reason.text and f': {reason.text}'}"
        for cluster, reason in blocked.items()
    ]
    text, code = sentence("; ".join([describe_placement(placement), *parts])), first_code(blocked.values())
    return _build_status(placement, state, text, now, admitted_shares=held, code=code)


def withdrawing_status(
    placement: Placement, blocked: Mapping[str, str], cause: Reason, until: datetime, now: datetime
) -> PlacementStatus:
    """The round is given up: what it holds goes, and its blockers are not asked again before `until`."""
    parts = [f"{cluster}: {text or 'its Kueue did not answer'}" for cluster, text in blocked.items()]
    reason = "; ".join([f"{clause(cause.text)}, so every share is given back", *parts])
    held = [share for share in placement.shares if not placement.is_from_last_plan(share)]
    text, code = sentence(reason), cause.code
    status = _build_status(placement, PlacementState.WITHDRAWING, text, now, admitted_shares=held, code=code)
    status["withdrawnRound"] = placement.round
    status["blocked"] = [
        {
            "cluster": cluster,
            "until": format_time(until),
            "reason": truncate(f"did not admit in time{text and f': {text}'}", MAX_ITEM_LENGTH),
        }
        for cluster, text in blocked.items()
    ]
    return status


def ended_status(placement: Placement, now: datetime, ending: str = "") -> PlacementStatus:
    """The Workload is finished; this stays as the record of where its workers were. `ending` says where some still end."""
    reason = " ".join(part for part in (placement.explanation, ending) if part)
    status = _build_status(placement, PlacementState.ENDED, reason, now, admitted_shares=())
    status["workers"] = "0"
    return status


def describe_placement(placement: Placement) -> str:
    """`2 east, 2 west`: how many workers each cluster has or is asked for."""
    return describe_shares(placement.shares)


def first_code(reasons: Iterable[Reason]) -> Code | None:
    """The code of the first of some reasons, for a condition; None without any."""
    return next((reason.code for reason in reasons), None)


def _build_status(
    placement: Placement,
    state: PlacementState,
    reason: str,
    now: datetime,
    *,
    admitted_shares: Iterable[Share],
    code: Code | None = None,
) -> PlacementStatus:
    """The status of a Placement; the reason of its condition is the code, or the state where no code says more."""
    places = sum(share.workers for share in admitted_shares)
    if placement.job:  # one that has shrunk may have places that nobody needs
        places = min(places, placement.wanted_workers)
    return {
        "state": state.value,
        "workers": f"{places} of {placement.wanted_workers}",
        "where": truncate(describe_placement(placement), _MAX_WHERE_LENGTH),
        "reason": truncate(reason),
        "conditions": [_placed_condition(placement, state, code or state.value, truncate(reason), now)],
    }


def _placed_condition(
    placement: Placement, state: PlacementState, reason: str, message: str, now: datetime
) -> dict[str, object]:
    before = condition({"status": placement.status}, names.PLACED)
    after = {"type": names.PLACED, "status": state.placed_condition, "reason": reason, "message": message}
    return updated_condition(before, after, format_time(now))


def set_pending(gang: Gang, workload: Workload, message: str) -> list[Action]:
    """Let the Workload wait, with the reason on its check."""
    entry, message = workload.checks[gang.check], truncate(message)
    if entry.state == names.CHECK_PENDING and entry.message == message:
        return []
    return [set_check(gang, workload, names.CHECK_PENDING, message)]


def set_check(gang: Gang, workload: Workload, state: str, message: str) -> SetCheck:
    """Write our entry of the Workload's checks."""
    return SetCheck(workload, gang.check, state, truncate(message))


def update_status(placement: Placement, status: Mapping[str, object]) -> list[Action]:
    """Write the Placement's status, as far as it is another."""
    return (
        []
        if all(placement.status.get(k) == v for k, v in status.items())
        else [UpdatePlacementStatus(placement, status)]
    )
