"""The messages about a gang: on its check, on its Placement, and in events on its job.

A status function leaves out fields that only later states have. An existing message or status is not written again, so
a waiting gang costs no writes. Other modules decide when a message is due.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, SetCheck, UpdatePlacementStatus, emit_event
from adapter.gang.gang_facts import Gang
from adapter.objects.past_exclusions import PastExclusions
from adapter.objects.placement import Placement, PlacementState, Share, describe_shares
from adapter.objects.reason import Reason, clause, sentence
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, condition, format_time, truncate, updated_condition
from adapter.objects.workload import Workload

PlacementStatus = dict[str, object]
Code = names.ReasonCode | names.ConditionReason

_MAX_WHERE_LENGTH = 2_048


def waiting_status(placement: Placement, now: datetime) -> PlacementStatus:
    """The status while nothing is reserved; its text is the plan's explanation, which lists the shortages."""
    return _build_status(
        placement, PlacementState.WAITING, placement.explanation, now, admitted_shares=(), code=placement.code
    )


def no_quota_status(placement: Placement, now: datetime) -> PlacementStatus:
    """The status of an elastic job without manager quota; its Placement waits for the next attempt."""
    text, code = "The job holds no quota in the manager cluster now.", names.ReasonCode.NO_MANAGER_QUOTA
    return _build_status(placement, PlacementState.WAITING, text, now, admitted_shares=(), code=code)


def first_reasons(blocked: Mapping[Share, Reason]) -> dict[str, Reason]:
    """The first reason of each cluster that has a text, or its last one."""
    reasons = dict[str, Reason]()
    for share, reason in blocked.items():
        known = reasons.get(share.cluster)
        reasons[share.cluster] = known if known and known.text else reason
    return reasons


def reason_by_cluster(blocked: Mapping[Share, Reason]) -> dict[str, str]:
    return {cluster: reason.text for cluster, reason in first_reasons(blocked).items()}


def reserving_status(placement: Placement, blocked: Mapping[Share, Reason], now: datetime) -> PlacementStatus:
    admitted = [share for share in placement.shares if share not in blocked]
    parts = [f"{cluster}: {text}" for cluster, text in reason_by_cluster(blocked).items() if text]
    reason = "; ".join(
        [
            f"{placement.lost_reason and f'{placement.lost_reason} '}"
            f"Reserving quota for workers: {describe_placement(placement)}",
            *parts,
        ]
    )
    code = first_code(blocked.values())
    return _build_status(
        placement, PlacementState.RESERVING, sentence(reason), now, admitted_shares=admitted, code=code
    )


def placed_status(placement: Placement, now: datetime, message: str = "", *, unplaced: int = 0) -> PlacementStatus:
    """The status once every share is admitted; `message` defaults to the plan's explanation."""
    text, shares = message or placement.explanation, placement.shares
    status = _build_status(placement, PlacementState.PLACED, text, now, admitted_shares=shares, unplaced=unplaced)
    return {**status, "placedRound": placement.round}


def degraded_status(
    placement: Placement,
    blocked: Mapping[str, Reason],
    unreachable: Mapping[str, str],
    now: datetime,
    *,
    unplaced: int = 0,
) -> PlacementStatus:
    """The status of a job that runs although a share is unreachable or not admitted."""
    admitted = [s for s in placement.shares if s.cluster not in blocked]
    state = PlacementState.UNKNOWN if any(cluster in unreachable for cluster in blocked) else PlacementState.PLACED
    parts = [
        f"workers in {cluster} are left running: the cluster {clause(reason.text)}"
        if cluster in unreachable
        else f"the share in {cluster} is not admitted now{reason.text and f': {reason.text}'}"
        for cluster, reason in blocked.items()
    ]
    text, code = sentence("; ".join([describe_placement(placement), *parts])), first_code(blocked.values())
    return _build_status(placement, state, text, now, admitted_shares=admitted, code=code, unplaced=unplaced)


def withdrawing_status(
    placement: Placement, blocked: Mapping[str, str], cause: Reason, until: datetime, now: datetime
) -> PlacementStatus:
    """The status of a withdrawn round; plans before `until` exclude the clusters that blocked it."""
    parts = [f"{cluster}: {text or 'its Kueue did not answer'}" for cluster, text in blocked.items()]
    reason = "; ".join([f"{clause(cause.text)}, so every share is deleted", *parts])
    admitted = [share for share in placement.shares if not placement.is_from_last_plan(share)]
    text, code = sentence(reason), cause.code
    status = _build_status(placement, PlacementState.WITHDRAWING, text, now, admitted_shares=admitted, code=code)
    status["withdrawnRound"] = placement.round
    status["blocked"] = [
        {
            "cluster": cluster,
            "until": format_time(until),
            "reason": truncate(describe_exclusion(Reason(cause.code, text)), MAX_ITEM_LENGTH),
        }
        for cluster, text in blocked.items()
    ]
    return status


def describe_exclusion(reason: Reason) -> str:
    """What a cluster did that did not admit a share, for the plans that exclude it."""
    is_refused = reason.code is names.ReasonCode.CHECK_REFUSED
    deed = "refused a share" if is_refused else "did not admit in time"
    return f"{deed}{reason.text and f': {reason.text}'}"


def ended_status(placement: Placement, now: datetime, ending: str = "") -> PlacementStatus:
    """The status of a Placement that stays as a record; `ending` says where workers still end."""
    reason = " ".join(part for part in (placement.explanation, ending) if part)
    status = _build_status(placement, PlacementState.ENDED, reason, now, admitted_shares=())
    status["workers"] = "0"
    return status


def describe_placement(placement: Placement) -> str:
    """Describe the shares, as in `2 east, 2 west`."""
    return describe_shares(placement.shares)


def first_code(reasons: Iterable[Reason]) -> Code | None:
    return next((reason.code for reason in reasons), None)


def _build_status(
    placement: Placement,
    state: PlacementState,
    reason: str,
    now: datetime,
    *,
    admitted_shares: Iterable[Share],
    code: Code | None = None,
    unplaced: int = 0,
) -> PlacementStatus:
    """Build a Placement's status; its condition's reason is the code, or the state if there is no code.

    `unplaced` is the number of workers without a slot; other groups may have more slots than workers.
    """
    slots = min(sum(share.workers for share in admitted_shares), max(placement.wanted_workers - unplaced, 0))
    return {
        "state": state.value,
        "workers": f"{slots} of {placement.wanted_workers}",
        "where": truncate(describe_placement(placement), _MAX_WHERE_LENGTH),
        "reason": truncate(reason),
        "conditions": [
            _placed_condition(placement, state, code or state.value, truncate(reason), now),
            *_conditions_of_run(placement, state),
        ],
    }


def _conditions_of_run(placement: Placement, state: PlacementState) -> list[Raw]:
    """The other conditions, which end with the run."""
    has_ended = state in (PlacementState.WAITING, PlacementState.ENDED)
    return [] if has_ended else other_conditions(placement, names.PLACED)


def other_conditions(placement: Placement, kind: str) -> list[Raw]:
    """The conditions of a Placement of other types than this one."""
    return [entry for entry in placement.status.get("conditions") or () if entry.get("type") != kind]


def _placed_condition(
    placement: Placement, state: PlacementState, reason: str, message: str, now: datetime
) -> dict[str, object]:
    before = condition({"status": placement.status}, names.PLACED)
    after = {"type": names.PLACED, "status": state.placed_condition, "reason": reason, "message": message}
    return updated_condition(before, after, format_time(now))


def set_pending(gang: Gang, workload: Workload, message: str) -> list[Action]:
    """Set our check to Pending with this message, unless it is so already."""
    entry, message = workload.checks[gang.check], truncate(message)
    if entry.state == names.CHECK_PENDING and entry.message == message:
        return []
    return [set_check(gang, workload, names.CHECK_PENDING, message)]


def timeout_text(timeout: timedelta) -> str:
    return f"within {timeout.total_seconds():.0f}s"


def queue_again(
    gang: Gang,
    workload: Workload,
    reason: names.EventReason,
    text: str,
    *,
    names_job: bool = False,
    past_exclusions: PastExclusions | None = None,
) -> list[Action]:
    """Let Kueue queue the job again, which frees the quota in all worker clusters."""
    event = emit_event(workload.job, reason, text, warning=True, names_job=names_job)
    return [*event, retry_check(gang, workload, text, past_exclusions)]


def retry_check(gang: Gang, workload: Workload, message: str, past_exclusions: PastExclusions | None) -> SetCheck:
    """Answer Retry; the next attempt leaves out the clusters of `past_exclusions`."""
    return replace(set_check(gang, workload, names.CHECK_RETRY, message), past_exclusions=past_exclusions)


def set_check(gang: Gang, workload: Workload, state: str, message: str) -> SetCheck:
    return SetCheck(workload, gang.check, state, truncate(message))


def update_status(placement: Placement, status: Mapping[str, object]) -> list[Action]:
    """Write the Placement's status if it changes."""
    return (
        []
        if all(placement.status.get(k) == v for k, v in status.items())
        else [UpdatePlacementStatus(placement, status)]
    )
