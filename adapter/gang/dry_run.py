"""The dry runs that must precede a plan or the creation of a share.

A plan is made with the known results. If it takes a cluster without a result for the pod, that cluster is asked by a
dry run (rewrite/dry_run_pod.py), and the gang is planned again. So only clusters that would be taken are asked, and
none for a gang that waits for capacity. A share is not created without a result either; after a restart it is asked for
again. A result is valid for minutes and for all jobs of the same shape (shell/observe/dry_run_answers.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from adapter import names
from adapter.actions import Action, DryRunPod, Plan, RequeueAfter, Reserve, emit_event
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Share
from adapter.rewrite import dry_run_pod

REQUEUE_NOW = RequeueAfter(timedelta(0))  # a result enqueues no key


def defer_until_answered(gang: Gang, actions: Sequence[Action]) -> list[Action]:
    """Replace the plan, and the creation of shares, by the dry runs that must precede them."""
    for_plan, for_shares = (
        _dry_run_actions(gang, gang.dry_runs.missing_for_plan),
        _dry_run_actions(gang, gang.dry_runs.missing_for_shares),
    )
    remaining: list[Action] = []
    dry_runs: dict[tuple[str, str], DryRunPod] = {}
    for action in actions:
        required = for_plan if isinstance(action, Plan) else _dry_runs_for(action, for_shares)
        dry_runs |= required
        remaining += [] if required else [action]
    return [*remaining, *_report_unknown(gang, remaining), *dry_runs.values(), *([REQUEUE_NOW] if dry_runs else [])]


def denied_reason(gang: Gang, share: Share) -> str:
    """Why the cluster of a share denies its pods; empty if it does not, or if there is no result."""
    results = (gang.dry_runs.results.get((share.cluster, group.name)) for group in share.groups)
    return next(
        (f"it refuses its pods: {result.denied_reason}" for result in results if result and result.denied_reason), ""
    )


def _dry_runs_for(action: Action, dry_runs: Mapping[tuple[str, str], DryRunPod]) -> dict[tuple[str, str], DryRunPod]:
    """The dry runs that must precede an action; none unless it creates a share."""
    cluster = action.share.cluster if isinstance(action, Reserve) else ""
    return {pair: dry_run for pair, dry_run in dry_runs.items() if pair[0] == cluster}


def _dry_run_actions(gang: Gang, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DryRunPod]:
    workload = gang.workload
    podsets = {podset.name: podset for podset in workload.podsets} if workload else {}
    return {
        (cluster, group): DryRunPod(
            workload,
            podsets[group],
            target,
            dry_run_pod.build_pod(podsets[group].template, group, target, workload.namespace),
        )
        for cluster, group in pairs
        if workload and (target := gang.clusters.targets.get(cluster)) and group in podsets
    }


def _report_unknown(gang: Gang, actions: Iterable[Action]) -> list[Action]:
    """Report the created shares that hold what the template requests, because their dry run failed."""
    shares = [action.share for action in actions if isinstance(action, Reserve)]
    pairs = [(share.cluster, group.name) for share in shares for group in share.groups]
    failures = {
        cluster: gang.dry_runs.results[cluster, group].unknown_reason
        for cluster, group in pairs
        if (cluster, group) in gang.dry_runs.results
    }
    parts = [f"{cluster}: {reason}" for cluster, reason in failures.items() if reason]
    text = (
        f"What a worker will be could not be tried there before its quota was asked for, {'; '.join(parts)}. "
        "The share holds what the template asks for; what is added to the pods there must stand in it."
    )
    return emit_event(gang.workload.job, names.EventReason.DRY_RUN_FAILED, text) if parts and gang.workload else []
