"""The dry runs that must precede a plan or the creation of a share.

A gang is planned with the known results. Each cluster that the plan takes without a result gets a dry run
(rewrite/dry_run_pod.py), and the gang is planned again. So a gang without capacity costs no dry run. The creation of a
share needs a result too, also after a restart of the controller. A result is valid for minutes, for all jobs of the
same shape (shell/observe/dry_run_answers.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from adapter import names
from adapter.actions import Action, DryRunPod, Plan, RequeueAfter, Reserve, emit_event
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Share
from adapter.objects.required_objects import required_objects, unnamed_objects, unnamed_reason
from adapter.rewrite import dry_run_pod

REQUEUE_NOW = RequeueAfter(timedelta(0))  # because a dry run's result enqueues no key


def defer_until_answered(gang: Gang, actions: Sequence[Action]) -> list[Action]:
    """Replace plans and share creations by the dry runs that they lack."""
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
    """Why the share's cluster denies the share's pods; empty if it accepts them, or without a result."""
    if unnamed := _unnamed_reason(gang, share):
        return unnamed
    results = (gang.dry_runs.results.get((share.cluster, group.name)) for group in share.groups)
    return next(
        (f"it denies its pods: {result.denied_reason}" for result in results if result and result.denied_reason), ""
    )


def _unnamed_reason(gang: Gang, share: Share) -> str:
    """Why the pods of a planned share lack something there: its WorkerCluster names less since it was planned."""
    workload, target = gang.workload, gang.clusters.targets.get(share.cluster)
    if workload is None or target is None:
        return ""
    groups = {group.name for group in share.groups}
    required = [
        needed
        for podset in workload.podsets
        if podset.name in groups
        for needed in required_objects(podset.template.get("spec") or {})
    ]
    return unnamed_reason(unnamed_objects(required, target.pods, workload.namespace), target.pods, workload.namespace)


def _dry_runs_for(action: Action, dry_runs: Mapping[tuple[str, str], DryRunPod]) -> dict[tuple[str, str], DryRunPod]:
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
    """Report shares that are created although their dry run failed: they hold only what the template requests."""
    shares = [action.share for action in actions if isinstance(action, Reserve)]
    pairs = [(share.cluster, group.name) for share in shares for group in share.groups]
    failures = {
        cluster: gang.dry_runs.results[cluster, group].unknown_reason
        for cluster, group in pairs
        if (cluster, group) in gang.dry_runs.results
    }
    parts = [f"{cluster}: {reason}" for cluster, reason in failures.items() if reason]
    text = (
        f"The dry run of a worker failed before its quota was requested, {'; '.join(parts)}. The share holds only what "
        "the template requests: put everything that the cluster adds to pods into the template."
    )
    return emit_event(gang.workload.job, names.EventReason.DRY_RUN_FAILED, text) if parts and gang.workload else []
