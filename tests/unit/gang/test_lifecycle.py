"""Tests the rules of a gang: each rule with facts that make it apply, and a simulation that must come to rest.

Simulated clusters admit or deny, delete slowly, and become unreachable. The controller may lose its memory between any
two writes.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import (
    Action,
    Deactivate,
    DeletePlacement,
    DeletePod,
    DeleteShare,
    DeleteSharePods,
    EmitEvent,
    Plan,
    Reactivate,
    RecordExclusions,
    RequeueAfter,
    Reserve,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.gang import messages as explain
from adapter.gang.cleanup import unwanted_shares
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import RULES, decide, first_rule, gang_state
from adapter.gang.timeouts import (
    DEACTIVATE_AFTER,
    MAX_DOUBLINGS,
    MAX_EXCLUSION,
    MISSING_OBJECTS_RETRY,
    RESERVE_RETRY,
    RESYNC,
    SOON,
    exclusion_duration,
)
from adapter.objects.past_exclusions import format_past_exclusions
from adapter.objects.placement import Exclusion, Placement, Share, placement_name
from adapter.objects.placement import parse_placement as read_placement
from adapter.objects.reason import Reason
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Workload, parse_workload
from adapter.rewrite.target import Target
from tests.unit import builders as make
from tests.unit.builders import CHECK, at, make_placement, make_reservation, make_target, make_workload
from tests.unit.fact_builders import make_gang, with_facts

TIMEOUT = timedelta(seconds=30)
LATE = "Not admitted within 30s"
ELASTIC_RULES = {
    "slice replaced",
    "elastic job has a new slice",
    "ran before it had our check",
    "resized while it waits",
}
SECOND = timedelta(seconds=1)


def target(cluster: str, share: str = "", round_: int = 0) -> Target:
    return make_target(cluster, share=share, round=round_)


def gang(
    work: Raw | None, places: Iterable[Raw] = (), shares: Mapping[str, Raw | list[Raw]] | None = None, **more: Any
) -> Gang:
    """The facts from raw objects; `shares` are the reservations in each cluster."""
    standing = [
        (c, raw) for c, found in (shares or {}).items() for raw in (found if isinstance(found, list) else [found])
    ]
    plain: Raw = {
        "check": CHECK if work else "",
        "reservation_timeout": TIMEOUT,
    } | more
    found = tuple(map(read_placement, places))
    asked = {share.cluster for one in found for share in one.shares}
    return make_gang(
        workload=parse_workload(work) if work else None,
        placements=found,
        targets={cluster: target(cluster) for cluster in asked if cluster not in plain.get("unreachable", {})},
        reservations=tuple(parse_reservation(cluster, raw) for cluster, raw in standing),
        **plain,
    )


# --- the objects that the table speaks of ----------------------------------------------------------------------------

WORK, READY = make_workload(), make_workload(check=names.CHECK_READY)
ROUND1 = make_placement(WORK)
ROUND2 = make_placement(WORK, round=2)
WITHDRAWN = make_placement(WORK, withdrawn=1, blocked={"east": 60})
EARLIER = make_placement(WORK, attempt="earlier0")
NO_ROOM = make_placement(WORK, shares={}, explanation="4 workers needed at once, 2 fit now.")
HELD = make_reservation(ROUND1)
ASKED = make_reservation(ROUND1, admitted=False, message="pending the preemption of 1 workload")
BOTH: dict[str, Raw | list[Raw]] = {"east": HELD, "west": HELD}
HALF: dict[str, Raw | list[Raw]] = {"east": ASKED, "west": HELD}
W, R = parse_workload(WORK), parse_workload(READY)
JOB = W.job
assert JOB


def place(raw: Raw) -> Placement:
    return read_placement(raw)


def timed_out(text: str) -> Reason:
    return Reason(names.ReasonCode.RESERVATION_TIMEOUT, text)


def stuck(text: str) -> Reason:
    return Reason(names.ReasonCode.FAILED_DISPATCH, text)


def short(text: str) -> Reason:
    return Reason(names.ReasonCode.QUOTA_PENDING, text)


def reserving_status(raw: Raw, blocked: Mapping[str, Reason], now: datetime) -> Raw:
    """The status of a round whose share these clusters have not admitted."""
    found = place(raw)
    asked = {share.cluster: share for share in found.shares if found.is_from_last_plan(share)}
    return explain.reserving_status(found, {asked[cluster]: why for cluster, why in blocked.items()}, now)


def there(cluster: str, raw: Raw) -> Reservation:
    return parse_reservation(cluster, raw)


def told(raw: Raw, status: Mapping[str, Any]) -> Raw:
    """The Placement with that status."""
    return {**raw, "status": {**raw.get("status", {}), **status}}


def with_shares(raw: Raw, *shares: Raw) -> Raw:
    """The Placement with those shares."""
    return {**raw, "spec": {**raw["spec"], "shares": list(shares)}}


def pending(message: str, work: Workload = W) -> SetCheck:
    return SetCheck(work, CHECK, names.CHECK_PENDING, message)


NO = make_reservation(ROUND1, admitted=False, message="cpu is short")
NO_STATUS = explain.withdrawing_status(
    place(ROUND1),
    {"east": "cpu is short"},
    timed_out("Not admitted within 4s"),
    at(4) + exclusion_duration(place(ROUND1)),
    at(4),
)
MUTE = make_reservation(ROUND1, admitted=False)
MUTE_STATUS = explain.withdrawing_status(
    place(ROUND1), {"east": ""}, timed_out("Not admitted within 4s"), at(4) + exclusion_duration(place(ROUND1)), at(4)
)
AGAIN, OFTEN_AGAIN = make_placement(WORK, given_up=2), make_placement(WORK, given_up=4)
PLACED = explain.placed_status(place(ROUND1), at(5))
SHORT = "4 workers needed at once, 2 fit now."
WAITS = explain.waiting_status(place(NO_ROOM), at(5))
RESERVING = reserving_status(ROUND1, {"east": short("pending the preemption of 1 workload")}, at(5))
EAST_DRAINED = explain.withdrawing_status(
    place(ROUND1), {}, Reason(names.ReasonCode.CLUSTER_DRAINING, "Workers leave worker cluster east"), at(5), at(5)
)
GIVEN_UP = explain.withdrawing_status(
    place(ROUND1),
    {"east": "pending the preemption of 1 workload"},
    timed_out(LATE),
    at(30) + exclusion_duration(place(ROUND1)),
    at(30),
)
LOST = explain.degraded_status(place(ROUND1), {"east": short("pending the preemption of 1 workload")}, {}, at(5))
VANISHED = "Workers were lost, 2 in east: its reservation is gone there."
NO_QUOTA = "Workers were lost, 2 in east: it lost its quota there: pending the preemption of 1 workload."
UNCHECKED = make_reservation(ROUND1, admitted=False, conditions=[names.QUOTA_RESERVED])
UNCHECKED["status"]["conditions"] = UNCHECKED["status"]["conditions"][1:]
OUT_OF_SIGHT = "Workers were lost, 2 in east: the worker cluster is out of sight."
STOPPED_THERE = "its workers were stopped there: Preempted"
TAKEN = make_reservation(ROUND1, admitted=False, conditions=[names.EVICTED])
TAKEN["status"]["conditions"][-1]["message"] = "Preempted"
KEPT_WEST = {"cluster": "west", "groups": [{"name": "workers", "role": "role-workers", "count": 2}], "round": 1}
LEFT = with_shares(make_placement(WORK, round=2), KEPT_WEST)
AGAIN_WEST = told(with_shares(make_placement(WORK, round=2), KEPT_WEST, {**KEPT_WEST, "round": 2}), {"placedRound": 1})
AGAIN_NO = explain.withdrawing_status(
    place(AGAIN_WEST),
    {"west": "cpu is short"},
    timed_out("Not admitted within 4s"),
    at(4) + exclusion_duration(place(AGAIN_WEST)),
    at(4),
)
DRAINED = told(
    with_shares(make_placement(WORK, round=2), {**KEPT_WEST, "cluster": "east"}, KEPT_WEST, {**KEPT_WEST, "round": 2}),
    {"placedRound": 2},
)
LEFT_OUT = Exclusion("east", at(5) + exclusion_duration(place(ROUND1)), "it refuses its pods")
COPY = make.make_copy(make.make_pod())
ON_BOTH = frozenset({("east", 1), ("west", 1)})
UPDATE = {
    "name": "workers",
    "labels": {"rayspan.dev/placement": place(ROUND1).name},
    "annotations": {"rayspan.dev/slots": "east/1/role-workers/2 west/1/role-workers/2"},
    "nodeSelector": {"rayspan.dev/remote": "only"},
}
LOCKED = {key: value for key, value in UPDATE.items() if key != "annotations"}  # and has no slot
READY_SAID = SetCheck(W, CHECK, "Ready", str(PLACED["reason"]), (UPDATE,), (there("east", HELD), there("west", HELD)))
COMMIT: list[Action] = [
    READY_SAID,
    EmitEvent(JOB, names.EventReason.PLACED, str(PLACED["reason"])),
]
REFUSED: list[Action] = [
    EmitEvent(JOB, names.EventReason.REJECTED, "hostNetwork.", True, True),
    SetCheck(W, CHECK, "Rejected", "hostNetwork."),
]
STUCK: list[Action] = [
    EmitEvent(JOB, names.EventReason.FAILED_DISPATCH, "no gate.", True),
    pending("no gate."),
    RequeueAfter(RESYNC),
]
WAITING: list[Action] = [
    UpdatePlacementStatus(place(NO_ROOM), WAITS),
    pending(SHORT),
    EmitEvent(JOB, names.EventReason.WAITING, SHORT),
    RequeueAfter(RESYNC),
]
GAVE_WAY = f"Released the manager's quota for the jobs queued behind it, and queued again. {SHORT}"
YIELD: list[Action] = [EmitEvent(JOB, names.EventReason.DEACTIVATED, GAVE_WAY), Deactivate(W)]
FIRST: list[Action] = [
    EmitEvent(
        JOB,
        names.EventReason.DEACTIVATED,
        "Released the manager's quota for jobs that were queued before it, and queued again. Kueue gave the quota back "
        "to it before it tried them.",
    ),
    Deactivate(W),
]
EAST, WEST = there("east", HELD), there("west", HELD)
FREE_BOTH: list[Action] = [DeleteShare(EAST), DeleteShare(WEST)]
DELETING = make_reservation(ROUND1, deleting=True)
FINISHED, STOPPED = make_reservation(ROUND1, conditions=[names.FINISHED]), make_reservation(ROUND1, active=False)


@dataclass(frozen=True)
class Case:
    id: str
    reason: str
    facts: Gang
    want: Sequence[Action]
    seconds: float = 5  # after START, when the Workload was reserved and the plan made


def ask(cluster: str, work: Workload = W, raw: Raw = ROUND1) -> Reserve:
    return reserve(place(raw), next(s for s in place(raw).shares if s.cluster == cluster), work)


def reserve(found: Placement, share: Share, work: Workload) -> Reserve:
    templates = {podset.name: podset.template for podset in work.podsets}
    return Reserve(
        placement=found,
        share=share,
        target=target(share.cluster, found.name_of_share(share), found.round_of(share)),
        groups=tuple((group.name, group.count, templates[group.name]) for group in share.groups),
        priority=work.priority,
        starts_gang=work.checks[CHECK].state != names.CHECK_READY,
    )


ENDED = [
    Case("a Workload that is gone leaves nothing",
         "orphans hold quota",
         gang(None, shares=BOTH),
         FREE_BOTH),
    Case("a Workload that is being deleted leaves nothing",
         "its Placement is garbage collected",
         gang(make_workload(deleting=True), [ROUND1], BOTH),
         FREE_BOTH),
    Case("a share that is being deleted is not deleted again",
         "one write is enough",
         gang(None, shares={"east": DELETING, "west": HELD}),
         [DeleteShare(WEST)]),
    Case("deletion comes before the end",
         "no status for what goes",
         gang(make_workload(deleting=True, conditions=["Finished"]), [told(ROUND1, PLACED)], BOTH),
         FREE_BOTH),
    Case("a finished job gives its shares back and keeps its record",
         "people ask later where it ran",
         gang(make_workload(conditions=["Finished"]), [told(ROUND1, PLACED)], BOTH),
         [*FREE_BOTH, UpdatePlacementStatus(place(told(ROUND1, PLACED)),
             explain.ended_status(place(told(ROUND1, PLACED)), at(5)))]),
    Case("the end is recorded once",
         "no write without news",
         gang(make_workload(conditions=["Finished"]), [told(ROUND1, explain.ended_status(place(ROUND1), at(1)))]),
         []),
    Case("the end comes before the loss of quota",
         "Kueue takes the quota of a finished job; its record stays",
         gang(make_workload(conditions=["Finished"], reserved=None), [told(ROUND1, PLACED)]),
         [UpdatePlacementStatus(place(told(ROUND1, PLACED)),
                                explain.ended_status(place(told(ROUND1, PLACED)), at(5)))]),
    Case("an evicted Workload leaves nothing",
         "its quota is somebody else's soon",
         gang(make_workload(conditions=["Evicted"]), [ROUND1], BOTH),
         [*FREE_BOTH, DeletePlacement(place(ROUND1))]),
    Case("a deactivated Workload leaves nothing",
         "active: false is the user's stop",
         gang(make_workload(active=False), [ROUND1], BOTH),
         [*FREE_BOTH, DeletePlacement(place(ROUND1))]),
    Case("a Workload without a reservation leaves nothing",
         "no attempt, no shares",
         gang(make_workload(reserved=None), [ROUND1], BOTH),
         [*FREE_BOTH, DeletePlacement(place(ROUND1))]),
    Case("a Workload that is not ours any more leaves nothing",
         "the check was taken off its queue",
         gang(WORK, [ROUND1], BOTH, check=""),
         [*FREE_BOTH, DeletePlacement(place(ROUND1))]),
    Case("a job that runs is left alone all the same",
         "Kueue lets run what it admitted, whatever becomes of its queue's checks",
         gang(READY, [told(ROUND1, PLACED)], BOTH, check=""),
         []),
    Case("where nothing stands nothing is done",
         "most Workloads, most of the time",
         gang(make_workload(reserved=None)),
         []),
    Case("an earlier round goes before anything new is asked for",
         "two rounds hold twice the quota",
         gang(WORK, [ROUND2], {"east": HELD}),
         [DeleteShare(EAST), RequeueAfter(RESYNC)]),
    Case("an earlier round that its cluster does not let us delete holds nothing up",
         "it may never go, others have room, and somebody should know",
         gang(WORK, [EARLIER], {"east": make_reservation(EARLIER)},
              deletion_denials={there("east", make_reservation(EARLIER)).uid: "no right"}),
         [DeletePlacement(place(EARLIER)),
          EmitEvent(JOB, names.EventReason.FAILED_SHARE_DELETION,
                    "Worker cluster east denies the deletion of Workload "
                    f"{there('east', make_reservation(EARLIER)).name} of this job, which still holds quota there: no "
                    "right", True),
          DeleteShare(there("east", make_reservation(EARLIER))), Plan(W, None, ())]),
    Case("an earlier round is waited for while it goes",
         "its quota is free only when it is gone",
         gang(WORK, [ROUND2], {"east": DELETING}),
         [RequeueAfter(RESYNC)]),
    Case("a share in a cluster where this round has none goes",
         "only what the plan names stands",
         gang(WORK, [make_placement(WORK, shares={"west": {"workers": 4}})], BOTH),
         [DeleteShare(EAST), RequeueAfter(RESYNC)]),
    Case("an earlier attempt's record and shares go",
         "another reservation of the manager's is another attempt",
         gang(WORK, [EARLIER], {"east": make_reservation(EARLIER)}),
         [DeletePlacement(place(EARLIER)), DeleteShare(there("east", make_reservation(EARLIER))),
          RequeueAfter(RESYNC)]),
    Case("an earlier attempt's record alone holds nothing up",
         "there is nothing to wait for",
         gang(WORK, [EARLIER]),
         [DeletePlacement(place(EARLIER)), Plan(W, None, ())]),
    Case("a withdrawn round's shares go",
         "all of them, also the admitted ones",
         gang(WORK, [WITHDRAWN], BOTH),
         [*FREE_BOTH, RequeueAfter(RESYNC)]),
    Case("a share that is finished there goes",
         "it will never be admitted again, and the next look asks anew",
         gang(WORK, [ROUND1], {"east": FINISHED, "west": HELD}),
         [DeleteShare(there("east", FINISHED)), RequeueAfter(RESYNC)]),
    Case("a share that is deactivated there goes",
         "an admin's stop there takes the share, not the gang",
         gang(WORK, [ROUND1], {"east": STOPPED, "west": HELD}),
         [DeleteShare(there("east", STOPPED)), RequeueAfter(RESYNC)]),
    Case("leftovers of a job that runs go",
         "whose workers are planned anew meanwhile",
         gang(READY, [told(ROUND1, PLACED)], {"east": STOPPED, "west": HELD}),
         [
             DeleteShare(there("east", STOPPED)),
             EmitEvent(JOB, names.EventReason.SHARE_LOST, VANISHED, warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],), VANISHED),
             RequeueAfter(SOON),
         ]),
    Case("leftovers of a job that will be rejected go first",
         "first things first",
         gang(WORK, [ROUND2], {"east": HELD}, rejection="hostNetwork."),
         [DeleteShare(EAST), RequeueAfter(RESYNC)]),
]  # fmt: skip

PLANNED = [
    Case("a job that can never run is rejected",
         "before any quota is held remotely",
         gang(WORK, rejection="hostNetwork."),
         REFUSED),
    Case("a rejection comes before a planning problem",
         "no admin can help",
         gang(WORK, rejection="hostNetwork.", planning_problem="no gate."),
         REFUSED),
    Case("a job that runs is not rejected",
         "a new rule does not stop old jobs",
         gang(READY, [told(ROUND1, PLACED)], BOTH, rejection="hostNetwork."),
         []),
    Case("a warning for the user stands beside the answer",
         "a service that may stop as a whole says so when it starts",
         gang(WORK, [ROUND1], BOTH, start_warning="It may stop."),
         [UpdatePlacementStatus(place(ROUND1), PLACED),
          EmitEvent(JOB, names.EventReason.RESTARTS_ON_SHARE_LOSS, "It may stop.", True), *COMMIT]),
    Case("a warning about what only the manager has is an event of its own",
         "the user may have seen no warning at apply",
         gang(WORK, [ROUND1], BOTH, portability_warning="It names a Service."),
         [UpdatePlacementStatus(place(ROUND1), PLACED),
          EmitEvent(JOB, names.EventReason.REFERS_TO_MANAGER, "It names a Service.", True), *COMMIT]),
    Case("what is ignored of the clusters that a job names to leave is an event of its own",
         "whatever the gang does, its user may have misspelt a name",
         gang(READY, [told(ROUND1, PLACED)], BOTH, shares_with_pods=ON_BOTH, move_warning="No such cluster."),
         [EmitEvent(JOB, names.EventReason.MOVE_FROM_IGNORED, "No such cluster.", True, True)]),
    Case("a gang that cannot be planned waits and says why",
         "the user sees it on the Workload and on the job",
         gang(WORK, planning_problem="no gate."),
         STUCK),
    Case("the check is not written twice",
         "no write without news",
         gang(make_workload(message="no gate."), planning_problem="no gate."),
         [STUCK[0], STUCK[2]]),
    Case("a job that runs is left alone",
         "its pods were gated when they were made",
         gang(READY, [told(ROUND1, PLACED)], BOTH, planning_problem="no gate."),
         []),
    Case("shares that were asked for before a planning problem are given back",
         "no deadline runs while it lasts, and quota must not be held for nothing",
         gang(WORK, [ROUND1], {"east": HELD}, planning_problem="no gate."),
         [UpdatePlacementStatus(place(ROUND1), explain.withdrawing_status(place(ROUND1), {}, stuck("no gate."), at(5),
             at(5)))], seconds=5),
    Case("a Secret that is not there yet is looked up again soon",
         "nobody tells us that it was created",
         gang(WORK, missing_object="no Secret."),
         [EmitEvent(JOB, names.EventReason.FAILED_DISPATCH, "no Secret.", True, True), pending("no Secret."),
          RequeueAfter(MISSING_OBJECTS_RETRY)]),
    Case("a problem of the queue is reported before a missing Secret",
         "its user cannot help that one",
         gang(WORK, planning_problem="no gate.", missing_object="no Secret."),
         STUCK),
    Case("a job without its Secret gives quota to those behind it",
         "it is this gang's own trouble, and may last",
         gang(WORK, missing_object="no Secret.", quota_contended_from=at(0)),
         [
             EmitEvent(JOB, names.EventReason.DEACTIVATED,
                       "Released the manager's quota for the jobs queued behind it, and queued again. no Secret."),
             Deactivate(W),
         ], seconds=10),
    Case("a Secret that is deleted while clusters are asked withdraws the round",
         "its workers could not start on what they were promised",
         gang(WORK, [ROUND1], {"east": HELD}, missing_object="no Secret."),
         [UpdatePlacementStatus(place(ROUND1), explain.withdrawing_status(place(ROUND1), {}, stuck("no Secret."), at(5),
             at(5)))], seconds=5),
    Case("a round with a share in a cluster that is drained is withdrawn before the gang starts",
         "no worker could be created there, and the gang would start without its slots",
         gang(WORK, [ROUND1], BOTH, draining=frozenset({"east"})),
         [UpdatePlacementStatus(place(ROUND1), EAST_DRAINED), pending(str(EAST_DRAINED["reason"]))], seconds=5),
    Case("a job that KubeRay rejects waits with KubeRay's words",
         "an edited job may be valid, so the check is not Rejected",
         gang(WORK, kuberay_rejection="KubeRay: no."),
         [EmitEvent(JOB, names.EventReason.REJECTED_BY_KUBERAY, "KubeRay: no.", True, True), pending("KubeRay: no."),
          RequeueAfter(RESYNC)]),
    Case("a job that KubeRay rejects gives quota to those behind it",
         "it may last for ever",
         gang(WORK, kuberay_rejection="KubeRay: no.", quota_contended_from=at(0)),
         [
             EmitEvent(JOB, names.EventReason.DEACTIVATED,
                       "Released the manager's quota for the jobs queued behind it, and queued again. KubeRay: no."),
             Deactivate(W),
         ], seconds=10),
    Case("a job that KubeRay rejects while clusters are asked has its round withdrawn",
         "no pod will ever use the shares",
         gang(WORK, [ROUND1], {"east": HELD}, kuberay_rejection="KubeRay: no."),
         [UpdatePlacementStatus(place(ROUND1), explain.withdrawing_status(place(ROUND1), {},
             Reason(names.ReasonCode.REJECTED_BY_KUBERAY, "KubeRay: no."), at(5), at(5)))], seconds=5),
    Case("a placed job without pods that KubeRay rejects is evicted",
         "its shares are deleted once it holds no quota",
         gang(READY, [told(ROUND1, PLACED)], BOTH, kuberay_rejection="KubeRay: no."),
         [EmitEvent(JOB, names.EventReason.REJECTED_BY_KUBERAY, "KubeRay: no.", True, True),
          SetCheck(R, CHECK, "Retry", "KubeRay: no.")]),
    Case("a placed job with pods that KubeRay rejects after an edit is left alone",
         "what runs goes on",
         gang(READY, [told(ROUND1, PLACED)], BOTH, kuberay_rejection="KubeRay: no.",
              shares_with_manager_pods=frozenset({place(ROUND1).share_key(place(ROUND1).shares[0])})),
         []),
    Case("a Retry of a job that KubeRay rejects is left to Kueue",
         "a second word would take it back",
         gang(make_workload(check="Retry"), [told(ROUND1, PLACED)], BOTH, kuberay_rejection="KubeRay: no."),
         [RequeueAfter(RESYNC)]),
    Case("a placed job whose hosts KubeRay does not label is rejected",
         "it would be placed again for ever, and no replica be told from another",
         gang(READY, [told(ROUND1, PLACED)], BOTH, unlabelled_hosts="No label."),
         [EmitEvent(JOB, names.EventReason.REJECTED, "No label.", True, True),
          SetCheck(R, CHECK, "Rejected", "No label.")]),
    Case("a job that runs does not look up its Secrets",
         "its pods have copies",
         gang(READY, [told(ROUND1, PLACED)], BOTH, missing_object="no Secret."),
         []),
    Case("a Retry that Kueue has not acted on is left to it",
         "another word would take it back",
         gang(make_workload(check="Retry"), [NO_ROOM], changed_since_plan=True),
         [RequeueAfter(RESYNC)]),
    Case("a Rejected that Kueue has not acted on is left to it",
         "it would be deactivated again and again",
         gang(make_workload(check="Rejected"), rejection="no."),
         [RequeueAfter(RESYNC)]),
    Case("a job without remote workers is let through",
         "it is not for us to hold it up",
         gang(WORK, remote_podsets=()),
         [SetCheck(W, CHECK, "Ready", "No worker of this job needs to be placed.")]),
    Case("the groups of a job without remote workers are locked, for somebody may scale them by hand",
         "their pods would start in the manager, on quota that nobody gave",
         gang(WORK, remote_podsets=(), idle_podsets=("workers",)),
         [SetCheck(W, CHECK, "Ready", "No worker of this job needs to be placed.", (LOCKED,))]),
    Case("a job without remote workers is let through once",
         "no write without news",
         gang(READY, remote_podsets=()),
         []),
    Case("without a round one is planned",
         "the plan is written before anything is asked for",
         gang(WORK),
         [Plan(W, None, ())]),
    Case("after a withdrawal the next round leaves the blockers out",
         "the same plan would fail again",
         gang(WORK, [WITHDRAWN]),
         [Plan(W, place(WITHDRAWN), place(WITHDRAWN).blocked)]),
    Case("a blocker is planned on again after its exclusion",
         "until is the first second in which it is asked again",
         gang(WORK, [WITHDRAWN]),
         [Plan(W, place(WITHDRAWN), ())], seconds=60),
    Case("a blocker of an earlier round is still excluded",
         "two clusters may refuse one after the other",
         gang(WORK, [make_placement(WORK, round=2, withdrawn=2, excluded={"north": 40}, blocked={"east": 60})]),
         [
             Plan(
                 W,
                 place(make_placement(WORK, round=2, withdrawn=2, excluded={"north": 40}, blocked={"east": 60})),
                 read_placement(make_placement(WORK, excluded={"north": 40, "east": 60})).exclusions,
             ),
         ]),
]  # fmt: skip

AWAY, STOPPED_BY_USER = make_workload(active=False, yielded=0, yields=1), make_workload(active=False, yields=1)
STEPPED_ASIDE = [
    Case("a gang that was deactivated for others stays so for a moment",
         "Kueue looks at those behind a second later",
         gang(AWAY),
         [RequeueAfter(SECOND)], seconds=4),
    Case("a gang that was deactivated for others is reactivated, whoever noted it down",
         "the note is on the Workload, so a crash does not strand it",
         gang(AWAY),
         [Reactivate(parse_workload(AWAY))], seconds=5),
    Case("a Workload that a user deactivated stays so",
         "only what we took out is ours to put back",
         gang(STOPPED_BY_USER),
         [], seconds=99),
]  # fmt: skip

TRIED = make_placement(WORK, shares={}, excluded={"east": 60}, explanation=SHORT)
NO_EAST = make_placement(WORK, shares={}, excluded={"east": 20}, explanation=SHORT)
WAITING_RAW = told(NO_ROOM, WAITS)
WAITED = make_workload(message=SHORT)
LONELY = make_workload(owner="")
OFTEN = make_workload(yields=2)

WAITED_FOR = [
    Case("a gang that fits nowhere waits and says for what",
         "nothing is reserved meanwhile",
         gang(WORK, [NO_ROOM]),
         WAITING),
    Case("a message that is written already is not written again",
         "the announcer counts events, the API need not",
         gang(WAITED, [WAITING_RAW]),
         WAITING[2:]),
    Case("a Workload without a job gets no event",
         "an event needs an object",
         gang(LONELY, [make_placement(LONELY, shares={}, explanation=SHORT)]),
         [UpdatePlacementStatus(place(NO_ROOM), WAITS), pending(SHORT, parse_workload(LONELY)), RequeueAfter(RESYNC)]),
    Case("changed capacity leads to a new plan",
         "this is what it waits for",
         gang(WORK, [NO_ROOM], changed_since_plan=True),
         [Plan(W, place(NO_ROOM), ()), RequeueAfter(SOON)]),
    Case("a doubly deducted quota comes back at a known moment",
         "no event tells of it",
         gang(WORK, [NO_ROOM], deductions_expire_at=at(8)),
         [*WAITING[:-1], RequeueAfter(3 * SECOND)]),
    Case("a doubly deducted quota that came back leads to a new plan",
         "the gang may fit now",
         gang(WORK, [NO_ROOM], deductions_expire_at=at(8)),
         [Plan(W, place(NO_ROOM), ()), RequeueAfter(SOON)], seconds=8),
    Case("the end of an exclusion leads to a new plan",
         "it may admit now",
         gang(WORK, [TRIED]),
         [Plan(W, place(TRIED), ()), RequeueAfter(SOON)], seconds=60),
    Case("a gang is reconciled when an exclusion ends",
         "so the gang looks again then",
         gang(WORK, [NO_EAST]),
         [UpdatePlacementStatus(place(NO_EAST), WAITS), *WAITING[1:3], RequeueAfter(15 * SECOND)], seconds=5),
    Case("an exclusion that has not ended leads to no new plan",
         "it would say no again",
         gang(WORK, [TRIED]),
         [UpdatePlacementStatus(place(TRIED), WAITS), *WAITING[1:]], seconds=5),
    Case("a waiting gang gives quota to those behind it",
         "10 s after the reservation",
         gang(WORK, [NO_ROOM], quota_contended_from=at(0)),
         YIELD, seconds=10),
    Case("a waiting gang keeps its quota for a moment",
         "5 s of the 10 are left",
         gang(WORK, [NO_ROOM], quota_contended_from=at(0)),
         [*WAITING[:-1], RequeueAfter(5 * SECOND)]),
    Case("a waiting gang keeps its quota until Kueue has quota for nobody else",
         "it counts from 12 s on",
         gang(WORK, [NO_ROOM], quota_contended_from=at(12)),
         [
             UpdatePlacementStatus(place(NO_ROOM), explain.waiting_status(place(NO_ROOM), at(10))),
             pending(SHORT, parse_workload(WORK)),
             EmitEvent(JOB, names.EventReason.WAITING, SHORT),
             RequeueAfter(2 * SECOND),
         ], seconds=10),
    Case("a gang that was deactivated before keeps its quota for longer",
         "10 s doubled twice",
         gang(OFTEN, [NO_ROOM], quota_contended_from=at(0)),
         [
             UpdatePlacementStatus(place(NO_ROOM), explain.waiting_status(place(NO_ROOM), at(39))),
             pending(SHORT, parse_workload(OFTEN)),
             EmitEvent(JOB, names.EventReason.WAITING, SHORT),
             RequeueAfter(SECOND),
         ], seconds=39),
    Case("a gang that was deactivated before is deactivated again",
         "10 s doubled twice",
         gang(OFTEN, [NO_ROOM], quota_contended_from=at(0)),
         [YIELD[0], Deactivate(parse_workload(OFTEN))], seconds=40),
    Case("a gang that has its quota back before others were tried gives it to those queued before",
         "Kueue tries them a second later",
         gang(WORK, earlier_jobs_wait=True),
         FIRST),
    Case("leftover shares of the last attempt do not delay that",
         "the jobs queued before may fit elsewhere",
         gang(WORK, [], BOTH, earlier_jobs_wait=True),
         [*FREE_BOTH, *FIRST]),
    Case("a gang with shares keeps its quota",
         "a job of a higher priority may have come later, and this one is about to start",
         gang(WORK, [ROUND1], BOTH, earlier_jobs_wait=True),
         decide(gang(WORK, [ROUND1], BOTH), at(5))),
    Case("a gang that runs keeps its quota",
         "jobs queued before had their turn",
         gang(READY, [told(ROUND1, PLACED)], BOTH, earlier_jobs_wait=True),
         []),
    Case("a new plan comes before deactivation",
         "it may just have got its room",
         gang(WORK, [NO_ROOM], quota_contended_from=at(0), changed_since_plan=True),
         [Plan(W, place(NO_ROOM), ()), RequeueAfter(SOON)], seconds=99),
]  # fmt: skip

NOT_CREATED = Reason(names.ReasonCode.SHARE_NOT_CREATED, "")
NOT_ASKED = {"east": NOT_CREATED, "west": NOT_CREATED}
ONE_ASKED = {"west": NOT_CREATED}
SILENT = "is unreachable since 03:04:05 UTC: no answer in time"
UNREACHABLE = Reason(names.ReasonCode.CLUSTER_UNREACHABLE, SILENT)
SILENT_STATUS = PLACED | explain.degraded_status(place(ROUND1), {"east": UNREACHABLE}, {"east": SILENT}, at(5))
NOT_OPEN = "its API server denies the share: namespace demo is not open"
REFUSED_UP = explain.withdrawing_status(
    place(ROUND1), {"east": NOT_OPEN}, timed_out(LATE), at(30) + exclusion_duration(place(ROUND1)), at(30)
)
TOLD = told(ROUND1, RESERVING)


def reserving(
    blocked: Mapping[str, Reason],
    seconds: float = 5,
    raw: Raw = ROUND1,
    work: Workload = W,
    again: timedelta | None = None,
) -> list[Action]:
    status = reserving_status(raw, blocked, at(5))
    left = again if again is not None else timedelta(seconds=30 - seconds)
    return [UpdatePlacementStatus(place(raw), status), pending(str(status["reason"]), work), RequeueAfter(left)]


RESERVED = [
    Case("shares that do not stand are asked for",
         "in the order of the plan",
         gang(WORK, [ROUND1]),
         [ask("east"), ask("west"), *reserving(NOT_ASKED, again=RESERVE_RETRY)]),
    Case("only shares that do not stand are asked for",
         "a crash between two writes repeats neither",
         gang(WORK, [ROUND1], {"east": HELD}),
         [ask("west"), *reserving(ONE_ASKED, again=RESERVE_RETRY)]),
    Case("a denied share is asked for again soon, and says why",
         "a namespace may be opened, a policy mended, within the deadline",
         gang(WORK, [ROUND1], {"west": HELD}, creation_denials={"east": NOT_OPEN}),
         [ask("east"), *reserving({"east": Reason(names.ReasonCode.SHARE_REJECTED, NOT_OPEN)}, again=RESERVE_RETRY)]),
    Case("a denied share is not asked for after the deadline",
         "one second is left, and RETRY is two",
         gang(WORK, [ROUND1], {"west": HELD}, creation_denials={"east": NOT_OPEN}),
         [
             ask("east"),
             UpdatePlacementStatus(place(ROUND1), reserving_status(ROUND1,
                 {"east": Reason(names.ReasonCode.SHARE_REJECTED, NOT_OPEN)}, at(29))),
             pending(f"Reserving quota for workers: 2 east, 2 west; east: {NOT_OPEN}."),
             RequeueAfter(SECOND),
         ], seconds=29),
    Case("a denial is forgotten where the share stands",
         "what that Kueue says is newer",
         gang(WORK, [ROUND1], HALF, creation_denials={"east": NOT_OPEN}),
         reserving({"east": short("pending the preemption of 1 workload")})),
    Case("a denial is forgotten where the share is admitted",
         "all is well",
         gang(WORK, [ROUND1], BOTH, creation_denials={"east": NOT_OPEN}),
         [UpdatePlacementStatus(place(ROUND1), PLACED), *COMMIT]),
    Case("a cluster that denied the share and became unreachable is unreachable",
         "the newer reason counts",
         gang(WORK, [ROUND1], {"west": HELD}, creation_denials={"east": NOT_OPEN}, unreachable={"east": SILENT}),
         reserving({"east": UNREACHABLE})),
    Case("beside an unreachable cluster another one is asked again soon",
         "only what can be asked is missing",
         gang(WORK, [ROUND1], unreachable={"east": SILENT}),
         [ask("west"), *reserving({"east": UNREACHABLE, "west": NOT_CREATED}, again=RESERVE_RETRY)]),
    Case("an unreachable cluster is not asked",
         "it would not answer",
         gang(WORK, [ROUND1], {"west": HELD}, unreachable={"east": SILENT}),
         reserving({"east": UNREACHABLE})),
    Case("a cluster outside the plan may be unreachable",
         "nothing of ours is there",
         gang(WORK, [ROUND1], BOTH, unreachable={"north": "n"}),
         [UpdatePlacementStatus(place(ROUND1), PLACED), *COMMIT]),
    Case("the check turns Ready when all shares are admitted",
         "with pods labelled and locked, and the shares read once more",
         gang(WORK, [ROUND1], BOTH),
         [UpdatePlacementStatus(place(ROUND1), PLACED), *COMMIT]),
    Case("Ready is written once",
         "nothing is left to do while it runs",
         gang(READY, [told(ROUND1, PLACED)], BOTH),
         []),
    Case("a status that was lost in a crash is written later",
         "the check says Ready, the Placement must too",
         gang(READY, [ROUND1], BOTH),
         [UpdatePlacementStatus(place(ROUND1), PLACED)]),
    Case("groups without workers are locked as well",
         "whoever scales one by hand gets gated pods",
         gang(WORK, [ROUND1], BOTH, idle_podsets=("spare",)),
         [UpdatePlacementStatus(place(ROUND1), PLACED),
          replace(READY_SAID, podset_updates=(UPDATE, LOCKED | {"name": "spare"})), *COMMIT[1:]]),
    Case("admission at the last moment counts",
         "the deadline is for what is missing",
         gang(WORK, [ROUND1], BOTH),
         [UpdatePlacementStatus(place(ROUND1), explain.placed_status(place(ROUND1), at(99))), *COMMIT], seconds=99),
    Case("a share that holds no quota any more is lost",
         "its queue may be long",
         gang(READY, [told(ROUND1, PLACED)], HALF),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, NO_QUOTA, warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],), NO_QUOTA),
             RequeueAfter(SOON),
         ], seconds=99),
    Case("a share that holds quota and is not admitted is not lost",
         "a check of that cluster's own may have said no for a while",
         gang(READY, [told(ROUND1, PLACED)], {"east": UNCHECKED, "west": HELD}),
         [
             UpdatePlacementStatus(
                 place(told(ROUND1, PLACED)),
                 explain.degraded_status(place(told(ROUND1, PLACED)),
                                         {"east": Reason(names.ReasonCode.CHECK_PENDING,
                                                         "an admission check there is pending")}, {}, at(99)),
             ),
             RequeueAfter(RESYNC),
         ], seconds=99),
    Case("the workers of a share that vanished are planned again",
         "the others stay where they are",
         gang(READY, [told(ROUND1, PLACED)], {"west": HELD}),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, VANISHED, warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],), VANISHED),
             RequeueAfter(SOON),
         ]),
    Case("a share that vanished before the status said placed is planned again",
         "a crash may have come between",
         gang(READY, [ROUND1], {"west": HELD}),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, VANISHED, warning=True),
             Plan(R, place(ROUND1), (), (place(ROUND1).shares[1],), VANISHED),
             RequeueAfter(SOON),
         ]),
    Case("the whole gang starts again where its policy says so",
         "some jobs are of no use in part",
         gang(READY, [told(ROUND1, PLACED)], {"west": HELD}, on_share_lost="Restart"),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, VANISHED, warning=True),
             SetCheck(R, CHECK, names.CHECK_RETRY,
                      f"{VANISHED} The whole job restarts, because its policy has onShareLost: Restart."),
         ]),
    Case("a share whose quota went to others is lost",
         "its Kueue stopped its workers, and they are all gone",
         gang(READY, [told(ROUND1, PLACED)], {"east": TAKEN, "west": HELD}),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, f"Workers were lost, 2 in east: {STOPPED_THERE}.",
                       warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],),
                  f"Workers were lost, 2 in east: {STOPPED_THERE}."),
             RequeueAfter(SOON),
         ]),
    Case("while one share is given up, those of the others stay wanted",
         "the plan is what says who is wanted",
         gang(READY, [told(LEFT, {"placedRound": 2})], {"east": HELD, "west": HELD}),
         [
             DeleteShare(there("east", HELD)),
             UpdatePlacementStatus(place(told(LEFT, {"placedRound": 2})),
                                   explain.placed_status(place(told(LEFT, {"placedRound": 2})), at(5))),
             RequeueAfter(RESYNC),
         ]),
    Case("unplaced workers wait for capacity",
         "the job runs with the others",
         gang(READY, [told(LEFT, {"placedRound": 2})], {"west": HELD}),
         [UpdatePlacementStatus(place(told(LEFT, {"placedRound": 2})),
                                explain.placed_status(place(told(LEFT, {"placedRound": 2})), at(5))),
                                RequeueAfter(RESYNC)]),
    Case("unplaced workers are planned again when capacity changes",
         "what is kept is not asked for",
         gang(READY, [told(LEFT, {"placedRound": 2})], {"west": HELD}, changed_since_plan=True),
         [Plan(R, place(told(LEFT, {"placedRound": 2})), (), place(LEFT).shares), RequeueAfter(SOON)]),
    Case("a further round is asked for beside the kept shares",
         "in the same cluster, too",
         gang(READY, [AGAIN_WEST], {"west": HELD}),
         [
             reserve(place(AGAIN_WEST), place(AGAIN_WEST).shares[1], R),
             UpdatePlacementStatus(place(AGAIN_WEST), reserving_status(AGAIN_WEST, {"west": NOT_CREATED}, at(5))),
             RequeueAfter(RESERVE_RETRY),
         ]),
    Case("a further round is withdrawn alone",
         "the job does not lose what it has",
         gang(READY, [AGAIN_WEST], {"west": [HELD,
             make_reservation(AGAIN_WEST, admitted=False, message="cpu is short")]}),
         [
             UpdatePlacementStatus(place(AGAIN_WEST), AGAIN_NO),
             EmitEvent(JOB, names.EventReason.RESERVATION_TIMEOUT, str(AGAIN_NO["reason"])),
         ], seconds=4),
    Case("a withdrawn further round is deleted, and the kept shares stay",
         "by round, not by cluster",
         gang(READY, [told(AGAIN_WEST, AGAIN_NO)], {"west": [HELD, make_reservation(AGAIN_WEST)]}),
         [
             DeleteShare(there("west", make_reservation(AGAIN_WEST))),
             Plan(R, place(told(AGAIN_WEST, AGAIN_NO)), place(told(AGAIN_WEST, AGAIN_NO)).blocked, place(LEFT).shares),
             RequeueAfter(SOON),
         ]),
    Case("unplaced workers are planned again without the cluster that did not admit them",
         "for a while",
         gang(READY, [told(AGAIN_WEST, AGAIN_NO)], {"west": HELD}),
         [
             Plan(R, place(told(AGAIN_WEST, AGAIN_NO)), place(told(AGAIN_WEST, AGAIN_NO)).blocked, place(LEFT).shares),
             RequeueAfter(SOON),
         ]),
    Case("the gang is whole once the further round is admitted",
         "and its user is told",
         gang(READY, [AGAIN_WEST], {"west": [HELD, make_reservation(AGAIN_WEST)]}),
         [
             UpdatePlacementStatus(place(AGAIN_WEST), explain.placed_status(place(AGAIN_WEST), at(5))),
             EmitEvent(JOB, names.EventReason.REPLACED, str(explain.placed_status(place(AGAIN_WEST), at(5))["reason"])),
         ]),
    Case("a cluster that was given up loses its share",
         "its workers failed, and nobody is on it any more",
         gang(READY, [told(ROUND1, PLACED)], {"west": HELD}, unreachable={"east": SILENT},
              lost={"east": "the worker cluster is out of sight"}),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, OUT_OF_SIGHT, warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],), OUT_OF_SIGHT),
             RequeueAfter(SOON),
         ]),
    Case("a lost share without workers is replaced at once when replacements wait",
         "Ray lost them all",
         gang(READY, [told(ROUND1, PLACED)], {"west": HELD}, unreachable={"east": "is out of sight"},
              has_unplaced_workers=True, shares_with_remote_pods=ON_BOTH),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, OUT_OF_SIGHT, warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (), (place(ROUND1).shares[1],), OUT_OF_SIGHT),
             RequeueAfter(SOON),
         ]),
    Case("a share that never had workers is not lost",
         "KubeRay has yet to make them, and the link is cut for a moment",
         gang(READY, [told(ROUND1, SILENT_STATUS)], {"west": HELD}, unreachable={"east": SILENT},
              has_unplaced_workers=True),
         [RequeueAfter(RESYNC)]),
    Case("a cluster that denies the pods is excluded also where the policy says Restart",
         "a new attempt would ask it again",
         gang(READY, [told(ROUND1, PLACED)], BOTH, pod_denials={("east", 1): "it refuses its pods"},
              on_share_lost="Restart"),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, "Workers were lost, 2 in east: it refuses its pods.",
                       warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (LEFT_OUT,), (place(ROUND1).shares[1],),
                  "Workers were lost, 2 in east: it refuses its pods.", 1),
             RequeueAfter(SOON),
         ]),
    Case("the worker that is next leaves the drained cluster",
         "with its grace period",
         gang(READY, [told(DRAINED, {"placedRound": 2})], {"east": HELD, "west": [HELD, make_reservation(DRAINED)]},
              draining=frozenset({"east"}), shares_with_pods=ON_BOTH | {("west", 2)}, pods_to_drain=(("east", COPY),)),
         [
             DeletePod("east", COPY, "the workers of its job move out of worker cluster east"),
             UpdatePlacementStatus(place(DRAINED), explain.placed_status(place(DRAINED), at(5))),
         ]),
    Case("a cluster that denies the pods is excluded for a while",
         "it has the quota, and does not let them in",
         gang(READY, [told(ROUND1, PLACED)], BOTH, pod_denials={("east", 1): "it refuses its pods"},
              shares_with_remote_pods=frozenset({("west", 1)})),
         [
             EmitEvent(JOB, names.EventReason.SHARE_LOST, "Workers were lost, 2 in east: it refuses its pods.",
                       warning=True),
             Plan(R, place(told(ROUND1, PLACED)), (LEFT_OUT,), (place(ROUND1).shares[1],),
                  "Workers were lost, 2 in east: it refuses its pods.", 1),
             RequeueAfter(SOON),
         ]),
    Case("a cluster that denies a pod while others run there is not excluded",
         "it may have its reasons for a while",
         gang(READY, [told(ROUND1, PLACED)], BOTH, pod_denials={("east", 1): "it refuses its pods"},
              shares_with_remote_pods=ON_BOTH),
         []),
    Case("a share is not lost while one of its workers counts as running",
         "Ray hears from it",
         gang(READY, [told(ROUND1, SILENT_STATUS)], {"west": HELD}, unreachable={"east": SILENT},
              lost={"east": "the worker cluster is out of sight"},
              shares_with_live_manager_pods=frozenset({("east", 1)})),
         [RequeueAfter(RESYNC)]),
    Case("a worker that must leave a drained cluster is planned elsewhere first",
         "and keeps its place until then",
         gang(READY, [told(ROUND1, PLACED)], BOTH, draining=frozenset({"east"}), shares_with_pods=ON_BOTH,
              changed_since_plan=True),
         [Plan(R, place(told(ROUND1, PLACED)), (), place(ROUND1).shares), RequeueAfter(SOON)]),
    Case("a drained share without workers is deleted",
         "its quota is free for others",
         gang(READY, [DRAINED], {"east": HELD, "west": [HELD, make_reservation(DRAINED)]}, draining=frozenset({"east"}),
              shares_with_pods=frozenset({("west", 1), ("west", 2)})),
         [Plan(R, place(DRAINED), (), place(DRAINED).shares[1:]), RequeueAfter(SOON)]),
    Case("a drain that was taken back keeps no more shares than are wanted",
         "what nobody is on yet goes",
         gang(READY, [DRAINED], {"east": HELD, "west": [HELD, make_reservation(DRAINED)]}, shares_with_pods=ON_BOTH),
         [Plan(R, place(DRAINED), (), place(DRAINED).shares[:2]), RequeueAfter(SOON)]),
    Case("a share in an unreachable cluster is not lost",
         "API link lost is not data path lost",
         gang(READY, [told(ROUND1, PLACED)], {"west": HELD}, unreachable={"east": SILENT}),
         [
             UpdatePlacementStatus(place(told(ROUND1, PLACED)),
                                   explain.degraded_status(place(told(ROUND1, PLACED)), {"east": UNREACHABLE},
                                                           {"east": SILENT}, at(5))),
             RequeueAfter(RESYNC),
         ]),
    Case("a share that is not admitted yet has its time",
         "a preemption needs its victims' grace",
         gang(WORK, [ROUND1], HALF),
         reserving({"east": short("pending the preemption of 1 workload")})),
    Case("a status that is written already is not written again",
         "no write without news",
         gang(make_workload(message=str(RESERVING["reason"])), [TOLD], HALF),
         [RequeueAfter(25 * SECOND)]),
    Case("a share has until the last second of its timeout",
         "the timeout is the policy's",
         gang(WORK, [ROUND1], HALF),
         [
             UpdatePlacementStatus(place(ROUND1), reserving_status(ROUND1,
                 {"east": short("pending the preemption of 1 workload")}, at(29))),
             pending(str(RESERVING["reason"])),
             RequeueAfter(SECOND),
         ], seconds=29),
    Case("the whole round is given back at its timeout",
         "all or nothing",
         gang(WORK, [ROUND1], HALF),
         [
             UpdatePlacementStatus(place(ROUND1), GIVEN_UP),
             pending(str(GIVEN_UP["reason"])),
             EmitEvent(JOB, names.EventReason.RESERVATION_TIMEOUT, str(GIVEN_UP["reason"])),
         ], seconds=30),
    Case("the whole round is given back when a share was denied to the end",
         "with that cluster's own words",
         gang(WORK, [ROUND1], {"west": HELD}, creation_denials={"east": NOT_OPEN}),
         [
             UpdatePlacementStatus(place(ROUND1), REFUSED_UP),
             pending(str(REFUSED_UP["reason"])),
             EmitEvent(JOB, names.EventReason.RESERVATION_TIMEOUT, str(REFUSED_UP["reason"])),
         ], seconds=30),
    Case("a Kueue that has no quota is not waited for",
         "the next cluster is decided on within five seconds",
         gang(WORK, [ROUND1], {"east": NO, "west": HELD}),
         [
             UpdatePlacementStatus(place(ROUND1), NO_STATUS),
             pending(str(NO_STATUS["reason"])),
             EmitEvent(JOB, names.EventReason.RESERVATION_TIMEOUT, str(NO_STATUS["reason"])),
         ], seconds=4),
    Case("a Kueue that has no quota is waited for for a moment: deleted Workloads may still count",
         "Kueue writes its figures in batches",
         gang(WORK, [ROUND1], {"east": NO, "west": HELD}),
         [
             UpdatePlacementStatus(place(ROUND1), reserving_status(ROUND1, {"east": short("cpu is short")}, at(3))),
             pending("Reserving quota for workers: 2 east, 2 west; east: cpu is short."),
             RequeueAfter(SECOND),
         ], seconds=3),
    Case("a Kueue that says nothing is not waited for",
         "its queue may stand still behind another Workload",
         gang(WORK, [ROUND1], {"east": MUTE, "west": HELD}),
         [
             UpdatePlacementStatus(place(ROUND1), MUTE_STATUS),
             pending(str(MUTE_STATUS["reason"])),
             EmitEvent(JOB, names.EventReason.RESERVATION_TIMEOUT, str(MUTE_STATUS["reason"])),
         ], seconds=4),
    Case("a Kueue that says nothing is waited for for longer after each withdrawn round",
         "it may be busy",
         gang(WORK, [AGAIN], {"east": MUTE, "west": HELD}),
         [
             UpdatePlacementStatus(place(AGAIN), reserving_status(AGAIN, {"east": short("")}, at(15))),
             pending("Reserving quota for workers: 2 east, 2 west."),
             RequeueAfter(SECOND),
         ], seconds=15),
    Case("a Kueue that says nothing is never waited for for longer than the policy allows",
         "4 s doubled four times is more than its 30",
         gang(WORK, [OFTEN_AGAIN], {"east": MUTE, "west": HELD}),
         [
             UpdatePlacementStatus(place(OFTEN_AGAIN), reserving_status(OFTEN_AGAIN, {"east": short("")}, at(29))),
             pending("Reserving quota for workers: 2 east, 2 west."),
             RequeueAfter(SECOND),
         ], seconds=29),
    Case("a share that is being deleted does not count",
         "an admin may delete it by hand",
         gang(WORK, [ROUND1], {"east": make_reservation(ROUND1, deleting=True, message="going"), "west": HELD}),
         reserving({"east": Reason(names.ReasonCode.SHARE_DELETING, "it is being deleted there")})),
]  # fmt: skip


def _rule(facts: Gang, seconds: float) -> str:
    """The name of the rule that applies."""
    return first_rule(gang_state(facts, at(seconds))).name


CASES = (*ENDED, *STEPPED_ASIDE, *PLANNED, *WAITED_FOR, *RESERVED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{_rule(case.facts, case.seconds)}: {case.id}")
def test_decide(case: Case) -> None:
    assert decide(case.facts, at(case.seconds)) == list(case.want), case.reason


def test_every_rule_has_its_cases() -> None:
    """The cases of rules for elastic jobs only are in test_elastic.py."""
    applied = {_rule(case.facts, case.seconds) for case in CASES}
    assert {rule.name for rule in RULES} - applied == ELASTIC_RULES


def test_rule_names_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_round_with_an_unknown_worker_group_is_withdrawn() -> None:
    """Somebody edited the Placement: the gang waits, says so, and withdraws the round in time."""
    raw = make_placement(WORK)
    raw["spec"]["shares"][0]["groups"][0]["name"] = "gone"
    first, late = decide(gang(WORK, [raw], {"west": HELD}), at(5)), decide(gang(WORK, [raw], {"west": HELD}), at(99))
    assert not any(isinstance(action, Reserve) for action in first)
    assert [type(action).__name__ for action in late] == ["UpdatePlacementStatus", "SetCheck", "EmitEvent"]


def preempting(*clusters: str) -> Raw:
    """The Placement, with shares that need preemption in these clusters."""
    spread = ROUND1["spec"]["shares"]
    return with_shares(ROUND1, *({**one, "preempts": True} if one["cluster"] in clusters else one for one in spread))


@pytest.mark.parametrize(
    ("raw", "standing", "asked"),
    [
        pytest.param(preempting("west"), {}, {"east"}, id="no other share stands"),
        pytest.param(preempting("west"), {"east": ASKED}, set(), id="another share is not admitted"),
        pytest.param(preempting("west"), {"east": HELD}, {"west"}, id="all other shares are admitted"),
        pytest.param(preempting("east", "west"), {}, {"east", "west"}, id="there are no other shares"),
    ],
)
def test_a_share_that_preempts_is_asked_for_last(
    raw: Raw, standing: dict[str, Raw | list[Raw]], asked: set[str]
) -> None:
    """So a round that is withdrawn before costs no running pod."""
    actions = decide(gang(WORK, [raw], standing), at(1))
    assert {action.share.cluster for action in actions if isinstance(action, Reserve)} == asked
    assert not [action for action in actions if isinstance(action, SetCheck) and action.state == names.CHECK_READY]


def test_the_backoff_of_many_deactivations_is_bounded() -> None:
    """A gang that fits nowhere may be deactivated every five minutes for days."""
    tired = make_workload(yields=1000)
    last = decide(gang(tired, [NO_ROOM], quota_contended_from=at(0)), at(300))[-1]
    assert last == Deactivate(parse_workload(tired))


# --- a small simulation --------------------------------------------------------------------------------------------


GOING = {"deletionTimestamp": make.stamp()}


class Trouble(Exception):
    """The write failed; the other actions are dropped."""


@dataclass
class Cluster:
    room: int
    honest: bool = True  # never shows capacity that it would not give
    silent: bool = False
    refuses: bool = False  # denials by its API server of a share that is still to be created
    shares: dict[str, Raw] = field(default_factory=dict)
    copies: dict[str, Raw] = field(default_factory=dict)  # one for each share that workers came to, by the share's name

    def held(self) -> int:
        return sum(raw["size"] for raw in self.shares.values() if parse_reservation("", raw).admitted)

    def of(self, share: str) -> tuple[Raw, ...]:
        return (self.copies[share],) if share in self.copies else ()

    def step(self) -> bool:
        """The next step of the cluster's own controllers: end a pod, finish a deletion, which frees capacity, or
        admit the first that fits."""
        for name, pod in list(self.copies.items()):
            if is_deleting(pod) and pod.get("late"):
                del self.copies[name]
                return False
            if is_deleting(pod):  # within its grace period
                self.copies[name] = {**pod, "late": True}
        for name, raw in list(self.shares.items()):
            if raw["metadata"].get("deletionTimestamp"):
                del self.shares[name]
                self.copies.pop(name, None)  # with the anchor
                return True
        for name, raw in self.shares.items():
            found = parse_reservation("", raw)
            if self.honest and not found.admitted and not found.ended and self.held() + raw["size"] <= self.room:
                self.shares[name] = {**raw, "status": {"conditions": [make.make_condition(names.ADMITTED)]}}
                break
        return False


def _after(event: str, share: Raw) -> Raw:
    """Change a share as somebody in the worker cluster might."""
    conditions = share["status"]["conditions"]
    changes: dict[str, Raw] = {
        "preempt": {"status": {"conditions": []}},
        "evict": {"status": {"conditions": [make.make_condition(names.EVICTED)]}},
        "stop": {"spec": {"active": False}},
        "end": {"status": {"conditions": [*conditions, make.make_condition(names.FINISHED)]}},
        "delete": {"metadata": share["metadata"] | GOING},
    }
    return share | changes[event]


class World:
    """The manager's objects, the clusters, and a controller whose only memory is `planned` and `refused`."""

    def __init__(self, clusters: Mapping[str, Cluster], wanted: int) -> None:
        self.clusters = dict(clusters)
        self.now, self.reserved, self.rooms = 0.0, 0, itertools.count(1)
        self.work: Raw | None = make_workload(groups={"workers": wanted})
        self.places: dict[str, Raw] = {}
        self.planned: dict[str, int] = {}
        self.decided_on: Raw | None = None  # the Workload as the last reconcile observed it
        self.refused: dict[tuple[str, int], dict[str, str]] = {}  # Placement and round -> cluster -> denial
        self.room = 0

    def look(self, crash_after: int = 99, meanwhile: tuple[str, str] | None = None) -> None:
        """Observe, decide, and run as many actions as come before a crash or a failed write.

        Other changes happen between the decision's first write and its second.
        """
        seen, self.decided_on = self.observed(), deepcopy(self.work)
        actions = decide(seen, at(self.now))
        if any(isinstance(action, Reserve) for action in actions):
            live = {(p.name, s.cluster, p.round_of(s)) for p in seen.placements for s in p.active_shares}
            gone = [
                r for r in seen.shares.reservations if not seen.shares.ending_pods.get(r.uid)
            ]  # ending workers delay others only briefly
            standing = {(r.placement, r.cluster, r.round) for r in gone}
            assert standing <= live or self.state() == names.CHECK_READY, "beside what is given up"
        try:
            for number, action in enumerate(actions[:crash_after]):
                if number == 1 and meanwhile:
                    self.happen(*meanwhile)
                self.do(action)
        except Trouble:
            pass
        if crash_after < len(actions):
            self.planned, self.refused = {}, {}

    def observed(self) -> Gang:
        seen = self.shown()
        return with_facts(seen, ending_pods={r.uid: self.clusters[r.cluster].of(r.name) for r in unwanted_shares(seen)})

    def shown(self) -> Gang:
        return gang(
            self.work,
            self.places.values(),
            {name: list(c.shares.values()) for name, c in self.clusters.items() if not c.silent},
            unreachable={name: "silent" for name, c in self.clusters.items() if c.silent},
            creation_denials={
                cluster: why
                for raw in self.places.values()
                for cluster, why in self.refused.get((raw["metadata"]["name"], raw["spec"]["round"]), {}).items()
            },
            last_round=0 if self.placed() else self.last_round(),
            changed_since_plan=any(
                self.planned.get(raw["metadata"]["uid"]) != self.room for raw in self.places.values()
            ),
        )

    def do(self, action: Action) -> None:
        match action:
            case Plan():
                self.plan(action)
            case Reserve(placement, share):
                self.reserve(placement, share)
            case DeleteSharePods() | DeleteShare():
                self.give_up(action)
            case SetCheck():
                self.set_check(action)
            case RecordExclusions():
                self.record_exclusions(action)
            case UpdatePlacementStatus(placement, status):
                if placement.name not in self.places:
                    raise Trouble
                self.places[placement.name] = told(self.places[placement.name], status)
            case DeletePlacement(placement):
                self.places.pop(placement.name, None)
            case EmitEvent() | RequeueAfter():
                pass
            case _:
                raise AssertionError(f"{action} is no business of a gang")

    def give_up(self, action: DeleteSharePods | DeleteShare) -> None:
        found, cluster = action.reservation, self.visible(action.reservation.cluster)
        if isinstance(action, DeleteSharePods):
            if found.name not in cluster.copies:
                return  # it ended meanwhile
            assert action.pods == (cluster.copies[found.name],), "of another share"
            cluster.copies[found.name] = {"metadata": dict(GOING)}
            return
        assert found.name not in cluster.copies, "its quota is free, and a worker still runs"
        if found.name in cluster.shares:
            cluster.shares[found.name] |= {"metadata": cluster.shares[found.name]["metadata"] | GOING}

    def reserve(self, placement: Placement, share: Share) -> None:
        cluster = self.visible(share.cluster)
        said = self.refused.setdefault((placement.name, placement.round), {})
        if cluster.refuses:
            said[share.cluster] = "refused"
            return
        said.pop(share.cluster, None)
        counts = {group.role: group.count for group in share.groups}
        owner = {"name": placement.workload, "uid": placement.workload_uid}
        planned: Raw = {"metadata": {"name": placement.name}, "spec": {"round": placement.round, "workload": owner}}
        raw = {**make_reservation(planned, admitted=False, counts=counts), "size": share.workers}
        raw["metadata"]["uid"] = f"{share.cluster}/{raw['metadata']['name']}"
        cluster.shares.setdefault(raw["metadata"]["name"], raw)

    def visible(self, name: str) -> Cluster:
        if self.clusters[name].silent:
            raise Trouble
        return self.clusters[name]

    def plan(self, action: Plan) -> None:
        """Fill clusters that are reachable and not excluded, in order; all or nothing. The simulation has one gang."""
        kept = [_kept(action.placement, share) for share in action.kept_shares or ()] if action.placement else []
        wanted = next(p.count for p in action.workload.podsets if p.name == "workers")
        left = wanted - sum(share.workers for share in action.kept_shares or ())
        shares: dict[str, dict[str, int]] = {}
        for name, cluster in self.clusters.items():
            take = 0 if cluster.silent else min(left, cluster.room - cluster.held())
            if take > 0 and name not in {e.cluster for e in action.exclusions}:
                shares[name], left = {"workers": take}, left - take
        assert self.decided_on, "planned for nobody"
        raw = make_placement(
            self.decided_on,  # a new attempt may have begun meanwhile: it gets its own plan
            shares={} if left and action.kept_shares is None else shares,
            round=max(action.placement.round if action.placement else 0, action.last_round) + 1,
            planned=self.now,
            excluded={e.cluster: (e.until - make.START).total_seconds() for e in action.exclusions},
            explanation=f"{wanted} wanted, {wanted - left} fit.",
        )
        raw["spec"]["shares"] = [*kept, *raw["spec"]["shares"]]
        raw["spec"] |= {} if action.kept_shares is None else {"since": raw["spec"]["round"]}
        before = self.places.get(raw["metadata"]["name"])
        self.places[raw["metadata"]["name"]] = told(raw, before.get("status", {})) if before else raw
        self.planned[raw["metadata"]["uid"]] = self.room

    def record_exclusions(self, action: RecordExclusions) -> None:
        if self.work is None or self.work["metadata"]["resourceVersion"] != action.workload.resource_version:
            raise Trouble
        text = format_past_exclusions(action.past_exclusions)
        self.work["metadata"].setdefault("annotations", {})[names.PAST_EXCLUSIONS_ANNOTATION] = text
        self.touch()

    def set_check(self, action: SetCheck) -> None:
        for share in action.reservations_to_verify:
            raw = self.visible(share.cluster).shares.get(share.name)
            if raw is None or not parse_reservation("", raw).admitted or "deletionTimestamp" in raw["metadata"]:
                raise Trouble
        if self.work is None or self.work["metadata"]["resourceVersion"] != action.workload.resource_version:
            raise Trouble
        if action.state == names.CHECK_READY and self.placed():  # its Placement may be deleted since the decision
            assert self.whole(), "Ready with a share missing"
        self.work["status"]["admissionChecks"][0] |= {"state": action.state, "message": action.message}
        self.touch()

    def whole(self) -> bool:
        """Whether the shares of the newest Placement stand, are admitted, and add up to the gang."""
        assert self.work
        found = next(
            p for p in map(read_placement, self.places.values()) if p.attempt == parse_workload(self.work).attempt
        )
        sizes = []
        for share in found.shares:
            raw = self.clusters[share.cluster].shares.get(found.name_of_share(share), {})
            stands = parse_reservation("", raw)
            sizes.append(raw.get("size", 0) if stands.admitted and not stands.deleting else 0)
        return sum(sizes) == found.wanted_workers > 0

    def placed(self) -> bool:
        """Whether a Placement stands for the current attempt."""
        attempt = parse_workload(self.work).attempt if self.work else ""
        return any(read_placement(raw).attempt == attempt for raw in self.places.values())

    def last_round(self) -> int:
        """The last round of the attempt that is observed; of an unreachable cluster only its workers' rounds are."""
        name = placement_name(parse_workload(self.work)) if self.work else ""
        observed = (
            parse_reservation("", raw)
            for cluster in self.clusters.values()
            for share, raw in cluster.shares.items()
            if share in cluster.copies or not cluster.silent
        )
        return max((share.round for share in observed if share.placement == name), default=0)

    def touch(self) -> None:
        assert self.work
        self.work["metadata"] |= {"resourceVersion": str(int(self.work["metadata"]["resourceVersion"]) + 1)}

    def state(self) -> str:
        return str(self.work["status"]["admissionChecks"][0]["state"]) if self.work else ""

    def standing(self) -> list[str]:
        return [
            f"{name}/{one}" for name, cluster in self.clusters.items() for one in (*cluster.shares, *cluster.copies)
        ]

    def requeue(self) -> None:
        """Kueue evicts the Workload and reserves its quota again: the check starts again."""
        if self.work:
            self.reserved += 1
            version = int(self.work["metadata"]["resourceVersion"]) + 1
            count = self.work["spec"]["podSets"][1]["count"]
            self.work = make_workload(groups={"workers": count}, reserved=self.reserved, version=version)

    def happen(self, event: str, name: str) -> None:
        cluster = self.clusters[name]
        match event:
            case "kueue":
                self.step(name)
            case "silent":
                cluster.silent = not cluster.silent
            case "more" | "less":
                cluster.room = max(0, cluster.room + (2 if event == "more" else -2))
                self.room = next(self.rooms)
            case "preempt" | "evict" | "stop" | "end" | "delete":
                cluster.shares = {name: _after(event, raw) for name, raw in cluster.shares.items()}
            case "refuse":
                cluster.refuses = not cluster.refuses
            case "requeue":
                self.requeue()
            case "erase":
                self.places.clear()
            case "second" | "minute":
                self.now += 1 if event == "second" else 60

    def start(self, name: str, cluster: Cluster) -> None:
        """Start a worker on each wanted share of a gang that runs."""
        if not cluster.silent and self.state() == names.CHECK_READY and (current := self.shown().current_placement):
            wanted = {current.name_of_share(share) for share in current.active_shares if share.cluster == name}
            for share in wanted & cluster.shares.keys():
                if parse_reservation("", cluster.shares[share]).admitted:
                    cluster.copies.setdefault(share, {"metadata": {}})

    def step(self, name: str) -> None:
        self.start(name, self.clusters[name])
        if self.clusters[name].step():
            self.room = next(self.rooms)

    def rest(self) -> bool:
        """Inject no more faults; return whether the simulation came to rest (in ten minutes of its own time)."""
        for cluster in self.clusters.values():
            cluster.silent = cluster.refuses = False
        self.room = next(self.rooms)
        quiet = 0
        for _ in range(600):
            before = repr((self.work, self.places, self.clusters))
            self.look()
            for name in self.clusters:
                self.step(name)
            self.now += 1
            quiet = quiet + 1 if repr((self.work, self.places, self.clusters)) == before else 0
            if quiet > 80:  # longer than any exclusion and any timeout
                return True
        return False


def _kept(placement: Placement, share: Share) -> Raw:
    groups = [{"name": g.name, "role": g.role, "count": g.count} for g in share.groups]
    return {"cluster": share.cluster, "groups": groups, "round": placement.round_of(share)}


HAPPENINGS = [
    "silent",
    "refuse",
    "more",
    "less",
    "preempt",
    "evict",
    "stop",
    "end",
    "delete",
    "requeue",
    "erase",
    "second",
    "minute",
]
EVENTS = st.tuples(
    st.sampled_from(["kueue"] * 5 + HAPPENINGS),
    st.sampled_from(["a", "b", "c"]),
)
# actions before the controller dies; most decisions have fewer
LOOKS = st.tuples(st.integers(0, 6), st.none() | EVENTS)
# Long runs: by default hypothesis takes about five steps, in which little can happen twice.
SCRIPTS = st.lists(st.one_of(EVENTS, LOOKS, LOOKS), min_size=20, max_size=60)
ROOMS = st.lists(st.integers(0, 4), min_size=3, max_size=3)


def played(rooms: Sequence[int], wanted: int, script: Iterable[Any], liar: str = "") -> World:
    world = World({n: Cluster(r, honest=n != liar) for n, r in zip("abc", rooms, strict=True)}, wanted)
    for step in script:
        if isinstance(step[0], int):
            world.look(*step)
        else:
            world.happen(*step)
    return world


@given(ROOMS, st.integers(1, 6), SCRIPTS)
@example(
    [0, 4, 0],
    1,
    [*[("kueue", "a")] * 4, (4, None), (5, None), (0, None), *[("kueue", "a")] * 3, ("second", "a"),
     *[("kueue", "a")] * 2, ("kueue", "b"), (4, None), ("minute", "a"), ("kueue", "b"), *[("kueue", "a")] * 3,
     ("delete", "a"), *[("kueue", "a")] * 2, ("delete", "b"), *[("kueue", "a")] * 3, ("requeue", "a"),
     (2, ("kueue", "b"))],
)  # fmt: skip
@example([1, 0, 0], 1, [*[("kueue", "a")] * 16, (1, None), (1, None), ("kueue", "a"), (2, ("erase", "a"))])
def test_a_gang_is_in_the_end_placed_whole_or_not_at_all(rooms: list[int], wanted: int, script: list[Any]) -> None:
    world = played(rooms, wanted, script)
    ran = world.state() == names.CHECK_READY
    assert world.rest(), "it goes on and on"
    if world.state() == names.CHECK_READY:
        room = sum(cluster.room - cluster.held() for cluster in world.clusters.values())
        assert world.whole() or (ran and not room), "a job runs with too few, and there is room for more"
    else:
        assert world.standing() == [], "half a gang is held"
        assert sum(cluster.room for cluster in world.clusters.values()) < wanted, "it fits, yet it waits"


@pytest.mark.parametrize("crash_after", range(4))
def test_no_share_of_a_deleted_placement_is_taken_for_a_share_of_the_next_one(crash_after: int) -> None:
    """The next plan gives another number of workers to a cluster whose earlier share still stands."""
    world = played([2, 2, 0], 4, [(9, None), *[("kueue", "a"), ("kueue", "b"), (9, None)] * 8])
    assert world.whole()
    for event in (("more", "a"), ("more", "a"), ("less", "b"), ("erase", "a")):
        world.happen(*event)
    world.look(crash_after)
    assert world.rest(), "it goes on and on"
    assert world.whole()


@given(ROOMS, st.integers(1, 6), SCRIPTS, st.sampled_from(["a", "b", "c"]))
def test_a_cluster_that_shows_capacity_and_does_not_admit_is_excluded(
    rooms: list[int], wanted: int, script: list[Any], liar: str
) -> None:
    world = played(rooms, wanted, script, liar)
    ran, honest = world.state() == names.CHECK_READY, [c for n, c in world.clusters.items() if n != liar]
    room = sum(cluster.room for cluster in honest)
    at_most = sum(max(cluster.room, cluster.held()) for cluster in honest)  # lost capacity takes back no admission
    stood = world.placed() and world.whole()
    world.rest()
    ready = world.state() == names.CHECK_READY
    assert ready or not (ran or room >= wanted)
    assert not ready or ran or stood or at_most >= wanted


@given(ROOMS, st.integers(1, 6), SCRIPTS, st.sampled_from(["gone", "deleting", "finished", "evicted", "deactivated"]))
def test_nothing_remains_of_an_ended_gang(rooms: list[int], wanted: int, script: list[Any], end: str) -> None:
    world = played(rooms, wanted, script)
    over: dict[str, Raw | None] = {
        "gone": None,
        "deleting": make_workload(deleting=True),
        "finished": make_workload(conditions=[names.FINISHED]),
        "evicted": make_workload(conditions=[names.EVICTED]),
        "deactivated": make_workload(active=False),
    }
    world.work = over[end]
    assert world.rest(), "it goes on and on"
    assert world.standing() == []
    if end in ("evicted", "deactivated"):
        assert world.places == {}


@given(ROOMS, SCRIPTS)
@example([0, 1, 3], [*[("kueue", "a")] * 16, (1, None), (2, None), ("kueue", "b"), ("kueue", "c")])
def test_the_order_of_facts_does_not_change_the_actions(rooms: list[int], script: list[Any]) -> None:
    """Stores list objects in any order."""
    seen = played(rooms, 4, script).observed()
    turned = with_facts(seen, reservations=seen.shares.reservations[::-1], placements=seen.placements[::-1])
    assert Counter(map(repr, decide(seen, at(7)))) == Counter(map(repr, decide(turned, at(7))))


@pytest.mark.parametrize(("given_up", "seconds"), [(0, 15), (1, 30), (2, 60), (3, 60), (10**6, 60)])
def test_a_cluster_is_excluded_for_longer_each_time(given_up: int, seconds: float) -> None:
    left_alone = exclusion_duration(place(make_placement(WORK, given_up=given_up)))
    assert seconds <= left_alone.total_seconds() <= seconds * 1.25


def test_the_timeouts_fit_each_other() -> None:
    """A gang that is deactivated must be reconciled before its exclusions end, or it would never use the capacity."""
    assert RESERVE_RETRY < TIMEOUT, "a share that was refused would be asked for once only"
    assert DEACTIVATE_AFTER < RESYNC < MAX_EXCLUSION < DEACTIVATE_AFTER * 2**MAX_DOUBLINGS
