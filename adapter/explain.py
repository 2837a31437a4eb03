"""Which sentence does a person read: the status of a Placement in each state of a gang.

Every function returns the status to write, complete but for what a later state adds. Nothing here decides.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from adapter import names
from adapter.facts import Placement, condition, timestamp

Status = dict[str, object]


def waiting(placement: Placement, now: datetime) -> Status:
    """Nothing is reserved; the plan's own explanation says what is short where."""
    return _status(placement, names.WAITING, placement.explanation, now, admitted=())


def reserving(placement: Placement, blocked: Mapping[str, str], now: datetime) -> Status:
    """Shares are asked for, some are not admitted yet."""
    held = [s.cluster for s in placement.shares if s.cluster not in blocked]
    parts = [f"{cluster}: {why}" for cluster, why in blocked.items() if why]
    reason = "; ".join([f"Reserving {where(placement)}", *parts])
    return _status(placement, names.RESERVING, _sentence(reason), now, admitted=held)


def placed(placement: Placement, now: datetime) -> Status:
    """Every share is admitted."""
    admitted = [s.cluster for s in placement.shares]
    return _status(placement, names.PLACED, placement.explanation, now, admitted=admitted)


def running(placement: Placement, blocked: Mapping[str, str], silent: Mapping[str, str], now: datetime) -> Status:
    """The job runs, but a share of it is not admitted any more, or cannot be seen."""
    held = [s.cluster for s in placement.shares if s.cluster not in blocked]
    parts = [
        f"what runs in {cluster} is left running: {why.removesuffix('.')}"
        if cluster in silent
        else f"the share in {cluster} is not admitted now{why and f': {why}'}"
        for cluster, why in blocked.items()
    ]
    return _status(placement, names.PLACED, _sentence("; ".join([where(placement), *parts])), now, admitted=held)


def withdrawing(placement: Placement, blocked: Mapping[str, str], why: str, until: datetime, now: datetime) -> Status:
    """The round is given up: what it holds goes, and its blockers are not asked again before `until`."""
    parts = [f"{cluster}: {text or 'its Kueue did not answer'}" for cluster, text in blocked.items()]
    reason = "; ".join([f"{why.removesuffix('.')}, so every share is given back", *parts])
    status = _status(placement, names.WITHDRAWING, _sentence(reason), now, admitted=())
    status["withdrawnRound"] = placement.round
    status["blocked"] = [
        {"cluster": cluster, "until": timestamp(until), "reason": f"did not admit in time{text and f': {text}'}"}
        for cluster, text in blocked.items()
    ]
    return status


def ended(placement: Placement, now: datetime) -> Status:
    """The Workload is finished; this stays as the record of where its workers were."""
    status = _status(placement, names.ENDED, placement.explanation, now, admitted=())
    status["workers"] = "0"
    return status


def where(placement: Placement) -> str:
    """`2 east, 2 west`: how many workers each cluster has or is asked for."""
    return ", ".join(f"{share.workers} {share.cluster}" for share in placement.shares)


def _status(placement: Placement, state: str, reason: str, now: datetime, *, admitted: Collection[str]) -> Status:
    held = sum(s.workers for s in placement.shares if s.cluster in admitted)
    return {
        "state": state,
        "workers": f"{held} of {placement.wanted}",
        "where": where(placement),
        "reason": reason,
        "conditions": [_placed_condition(placement, state, reason, now)],
    }


def _placed_condition(placement: Placement, state: str, reason: str, now: datetime) -> dict[str, object]:
    value = "True" if state == names.PLACED else "False"
    before = condition({"status": placement.status}, names.PLACED)
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    return {
        "type": names.PLACED,
        "status": value,
        "reason": state,
        "message": reason,
        "lastTransitionTime": since or timestamp(now),
    }


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
