"""Which worker clusters are to be asked what a copy would be there, before a gang is planned or a share is asked for?

A plan is made with what is known. Where it takes a cluster that has not said yet what it makes of such a pod, that cluster is asked by a
dry run (rewrite/dry_run_pod.py), and the gang is planned again with the answer: so only clusters that would be taken are asked, and a
gang that waits for room asks nobody. A share is not asked for without an answer either, which after a restart is another one.
An answer counts for minutes, and for all jobs of the same shape (shell/observe/dry_run_answers.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from adapter import names
from adapter.actions import Action, DryRunPod, Plan, RequeueAfter, Reserve, emit_event
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Share
from adapter.rewrite import dry_run_pod

REQUEUE_NOW = RequeueAfter(timedelta(0))  # the answer wakes nobody


def defer_until_answered(gang: Gang, actions: Sequence[Action]) -> list[Action]:
    """Put off the plan, and those of the shares, for which clusters are to be asked first, and ask them."""
    by_plan, of_shares = (
        _dry_run_actions(gang, gang.dry_runs.missing_for_plan),
        _dry_run_actions(gang, gang.dry_runs.missing_for_shares),
    )
    done: list[Action] = []
    tries: dict[tuple[str, str], DryRunPod] = {}
    for action in actions:
        first = by_plan if isinstance(action, Plan) else _dry_runs_for(action, of_shares)
        tries |= first
        done += [] if first else [action]
    return [*done, *_report_unknown(gang, done), *tries.values(), *([REQUEUE_NOW] if tries else [])]


def denied_reason(gang: Gang, share: Share) -> str:
    """Why the cluster of a share would not take its pods, empty while it would or nobody knows."""
    found = (gang.dry_runs.results.get((share.cluster, group.name)) for group in share.groups)
    return next((f"it refuses its pods: {one.denied_reason}" for one in found if one and one.denied_reason), "")


def _dry_runs_for(action: Action, dry_runs: Mapping[tuple[str, str], DryRunPod]) -> dict[tuple[str, str], DryRunPod]:
    """What is to be asked before a share is, nothing before anything else."""
    cluster = action.share.cluster if isinstance(action, Reserve) else ""
    return {pair: one for pair, one in dry_runs.items() if pair[0] == cluster}


def _dry_run_actions(gang: Gang, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DryRunPod]:
    work = gang.workload
    podsets = {podset.name: podset for podset in work.podsets} if work else {}
    return {
        (cluster, group): DryRunPod(
            work, podsets[group], target, dry_run_pod.build_pod(podsets[group].template, group, target, work.namespace)
        )
        for cluster, group in pairs
        if work and (target := gang.clusters.targets.get(cluster)) and group in podsets
    }


def _report_unknown(gang: Gang, actions: Iterable[Action]) -> list[Action]:
    """Say which of the shares that are asked for now hold what the template asks for, because nobody knows better."""
    shares = [action.share for action in actions if isinstance(action, Reserve)]
    pairs = [(share.cluster, group.name) for share in shares for group in share.groups]
    unknown = {
        cluster: gang.dry_runs.results[cluster, group].unknown_reason
        for cluster, group in pairs
        if (cluster, group) in gang.dry_runs.results
    }
    parts = [f"{cluster}: {why}" for cluster, why in unknown.items() if why]
    text = (
        f"What a worker will be could not be tried there before its quota was asked for, {'; '.join(parts)}. The share holds what the "
        "template asks for; what is added to the pods there must stand in it."
    )
    return emit_event(gang.workload.job, names.EventReason.DRY_RUN_FAILED, text) if parts and gang.workload else []
