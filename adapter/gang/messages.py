"""Which sentence does a person read of a gang: on its check, on its Placement, and on the job that its user looks at?

The functions for a Placement return the status to write, complete but for what a later state adds. A reason to wait and a status
that stand there already are not written again, so a gang that only waits costs no writes. What is to be said when is decided
elsewhere.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, Record, SetCheck
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Placement, Share, describe_shares
from adapter.objects.unstructured import MAX_ITEM_LENGTH, condition, format_time, truncate, updated_condition
from adapter.objects.workload import Workload

Status = dict[str, object]

_LONGEST_WHERE = 2_048


def waiting(placement: Placement, now: datetime) -> Status:
    """Nothing is reserved; the plan's own explanation says what is short where."""
    return _status(placement, names.WAITING, placement.explanation, now, held=())


def vacant(placement: Placement, now: datetime) -> Status:
    """An elastic job that holds none of the manager's quota now; its Placement waits for its next attempt."""
    return _status(placement, names.WAITING, "The job holds no quota in the manager cluster now.", now, held=())


def by_cluster(blocked: Mapping[Share, str]) -> dict[str, str]:
    """What keeps shares from being admitted, by cluster: of several reasons there the first."""
    found = dict[str, str]()
    for share, why in blocked.items():
        found[share.cluster] = found.get(share.cluster) or why
    return found


def reserving(placement: Placement, blocked: Mapping[Share, str], now: datetime) -> Status:
    """Shares are asked for, some are not admitted yet."""
    held = [share for share in placement.shares if share not in blocked]
    parts = [f"{cluster}: {why}" for cluster, why in by_cluster(blocked).items() if why]
    reason = "; ".join(
        [
            f"{placement.lost_reason and f'{placement.lost_reason} '}Reserving quota for workers: {where(placement)}",
            *parts,
        ]
    )
    return _status(placement, names.RESERVING, _sentence(reason), now, held=held)


def placed(placement: Placement, now: datetime, told: str = "") -> Status:
    """Every share is admitted; what is `told` of it, by default the plan's own explanation."""
    status = _status(placement, names.PLACED, told or placement.explanation, now, held=placement.shares)
    return {**status, "placedRound": placement.round}


def running(placement: Placement, blocked: Mapping[str, str], silent: Mapping[str, str], now: datetime) -> Status:
    """The job runs, but a share of it is not admitted any more, or cannot be seen."""
    held = [s for s in placement.shares if s.cluster not in blocked]
    state = names.UNKNOWN if any(cluster in silent for cluster in blocked) else names.PLACED
    parts = [
        f"what runs in {cluster} is left running: {why.removesuffix('.')}"
        if cluster in silent
        else f"the share in {cluster} is not admitted now{why and f': {why}'}"
        for cluster, why in blocked.items()
    ]
    return _status(placement, state, _sentence("; ".join([where(placement), *parts])), now, held=held)


def withdrawing(placement: Placement, blocked: Mapping[str, str], why: str, until: datetime, now: datetime) -> Status:
    """The round is given up: what it holds goes, and its blockers are not asked again before `until`."""
    parts = [f"{cluster}: {text or 'its Kueue did not answer'}" for cluster, text in blocked.items()]
    reason = "; ".join([f"{why.removesuffix('.')}, so every share is given back", *parts])
    held = [share for share in placement.shares if not placement.is_from_last_plan(share)]
    status = _status(placement, names.WITHDRAWING, _sentence(reason), now, held=held)
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


def ended(placement: Placement, now: datetime, ending: str = "") -> Status:
    """The Workload is finished; this stays as the record of where its workers were. `ending` says where some still end."""
    reason = " ".join(part for part in (placement.explanation, ending) if part)
    status = _status(placement, names.ENDED, reason, now, held=())
    status["workers"] = "0"
    return status


def where(placement: Placement) -> str:
    """`2 east, 2 west`: how many workers each cluster has or is asked for."""
    return describe_shares(placement.shares)


def _status(placement: Placement, state: str, reason: str, now: datetime, *, held: Iterable[Share]) -> Status:
    places = sum(share.workers for share in held)
    if placement.job:  # one that has shrunk may have places that nobody needs
        places = min(places, placement.wanted_workers)
    return {
        "state": state,
        "workers": f"{places} of {placement.wanted_workers}",
        "where": truncate(where(placement), _LONGEST_WHERE),
        "reason": truncate(reason),
        "conditions": [_placed_condition(placement, state, truncate(reason), now)],
    }


def _placed_condition(placement: Placement, state: str, reason: str, now: datetime) -> dict[str, object]:
    value = {names.PLACED: "True", names.UNKNOWN: "Unknown"}.get(state, "False")
    before = condition({"status": placement.status}, names.PLACED)
    return updated_condition(
        before, {"type": names.PLACED, "status": value, "reason": state, "message": reason}, format_time(now)
    )


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def pending(gang: Gang, work: Workload, message: str) -> list[Action]:
    """Let the Workload wait, with the reason on its check."""
    entry, message = work.checks[gang.check], truncate(message)
    if entry.state == names.CHECK_PENDING and entry.message == message:
        return []
    return [check(gang, work, names.CHECK_PENDING, message)]


def check(gang: Gang, work: Workload, state: str, message: str) -> SetCheck:
    """Write our entry of the Workload's checks."""
    return SetCheck(work, gang.check, state, truncate(message))


def record(placement: Placement, status: Mapping[str, object]) -> list[Action]:
    """Write the Placement's status, as far as it is another."""
    return [] if all(placement.status.get(k) == v for k, v in status.items()) else [Record(placement, status)]
