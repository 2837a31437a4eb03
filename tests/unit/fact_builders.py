"""Builds facts from fields given by name: each goes to the record that has it."""

from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from adapter.gang.gang_facts import (
    CapacityFacts,
    DryRunFacts,
    Gang,
    GangClusterFacts,
    GangJobFacts,
    PodFacts,
    PolicyFacts,
    ShareFacts,
)
from adapter.objects.cluster_clock import ClockOffsets
from adapter.rewrite.head_address import HeadAddress
from adapter.worker.worker_facts import (
    CreationFacts,
    HeadFacts,
    OwnerFacts,
    SlotChoiceFacts,
    Worker,
    WorkerClusterFacts,
)

Facts = TypeVar("Facts")

_GANG = Gang(
    workload=None,
    check="",
    placements=(),
    job=GangJobFacts(
        deleted=False,
        unsuspended=False,
        remote_podsets=("workers",),
        idle_podsets=(),
        rejection="",
        planning_problem="",
        missing_object="",
        kuberay_rejection="",
        unlabelled_hosts="",
        start_warning="",
        portability_warning="",
        waiting_warning="",
        move_warning="",
        relay="",
        record_denied=False,
    ),
    policy=PolicyFacts(
        reservation_timeout=timedelta(seconds=30),
        start_timeout=timedelta(minutes=15),
        on_share_lost="Replace",
        same_cluster=False,
        all_or_nothing=True,
        clusters=("east", "west"),
        min_workers=0,
        min_workers_timeout=None,
    ),
    clusters=GangClusterFacts(
        unreachable={}, lost={}, draining=frozenset(), growing=frozenset(), targets={}, clocks=ClockOffsets()
    ),
    shares=ShareFacts(
        reservations=(),
        creation_denials={},
        deletion_denials={},
        ending_pods={},
        round_started_at=None,
        started_at_by_round={},
        last_round=0,
    ),
    pods=PodFacts(
        shares_with_pods=frozenset(),
        shares_with_manager_pods=frozenset(),
        shares_with_live_manager_pods=frozenset(),
        shares_with_remote_pods=frozenset(),
        has_unplaced_workers=False,
        pod_denials={},
        pods_to_drain=(),
        workers=None,
        unstartable_since={},
        uncreated_since={},
        quota_unused_since=None,
        withheld_workers={},
        withheld_until=None,
        worker_counts=None,
        below_minimum_since=None,
    ),
    capacity=CapacityFacts(
        changed_since_plan=False, deductions_expire_at=None, quota_contended_from=None, earlier_jobs_wait=False
    ),
    dry_runs=DryRunFacts(results={}, missing_for_shares=(), missing_for_plan=()),
)

_WORKER = Worker(
    pod=None,
    remote_pods={},
    placement=None,
    owner=OwnerFacts(
        job=None, owns_pod=None, deleted=False, finished=False, restarts_on_share_loss=False, pull_secrets=()
    ),
    clusters=WorkerClusterFacts(
        reservations={}, targets={}, draining=(), loss=None, reachable=True, clocks=ClockOffsets()
    ),
    slots=SlotChoiceFacts(taken=(), lost_template_slot=False),
    creation=CreationFacts(created=False, may_exist_unobserved=True, unanswered=False, creating_pods=False),
    head=HeadFacts(address=HeadAddress(), pod=None, mirrors={}),
)


def make_gang(**given: Any) -> Gang:
    """A gang with these fields, of any record. It wants its group `workers` placed; all else is unknown."""
    return with_facts(_GANG, **given)


def make_worker(**given: Any) -> Worker:
    """A worker with these fields, of any record. All else is unknown, and no slot is taken."""
    return with_facts(_WORKER, **given)


def with_facts(facts: Facts, **given: Any) -> Facts:
    """The facts with other values in these fields, of any record."""
    assert is_dataclass(facts) and not isinstance(facts, type)
    changed: dict[str, Any] = {}
    for field in fields(facts):
        value = getattr(facts, field.name)
        if field.name in given:
            changed[field.name] = given.pop(field.name)
        elif type(value).__name__.endswith("Facts"):
            own = {other.name for other in fields(value)}
            changed[field.name] = replace(value, **{name: given.pop(name) for name in own & given.keys()})
    assert not given, f"no record has {sorted(given)}"
    return replace(facts, **changed)
