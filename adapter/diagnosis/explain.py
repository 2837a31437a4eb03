"""Diagnoses a job at the first stage that holds it up: job, Workload, admission checks, Placement, pods, Ray.

Later stages cannot proceed before that stage. Notes name what a running job lacks, and what was not readable.
"""

from collections.abc import Iterator

from adapter import names
from adapter.diagnosis import after_admission, before_admission
from adapter.diagnosis.blocker import STAGES, Diagnosis, Stage, as_sentence
from adapter.diagnosis.job_facts import JobFacts
from adapter.diagnosis.pod_state import UNREACHABLE_REASON, PodState, read_pod_state
from adapter.objects.move_from import ignored_part
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import mapping_field, printable_list, text_field
from adapter.objects.worker_pod import without_unplanned_slot


def pod_states(facts: JobFacts) -> list[PodState]:
    """The Ray nodes of a job, the head first."""
    placement = parse_placement(facts.placement) if facts.placement else None
    return [read_pod_state(without_unplanned_slot(pod, placement), facts) for pod in facts.pods]


def diagnose(facts: JobFacts) -> Diagnosis:
    """The stage that holds the job up, or its last stage."""
    states = pod_states(facts)
    if ended := before_admission.diagnose_job(facts):
        return ended
    if rejected := before_admission.diagnose_rejection(facts):
        return rejected
    obstacle = before_admission.diagnose_queue_label(facts) or before_admission.diagnose_workload(facts)
    if obstacle and not (obstacle.reason in _HARMLESS and _all_joined(facts, states)):
        return obstacle
    return (
        after_admission.diagnose_kuberay(facts, states)
        or after_admission.diagnose_pods(facts, states)
        or after_admission.diagnose_running(facts, states)
    )


def notes(facts: JobFacts, diagnosis: Diagnosis) -> list[str]:
    """Notes on a diagnosis: what a running job lacks, unreachable clusters, and objects that were not readable.

    An incomplete namespace comes first: its jobs wait for it, whatever the diagnosis is.
    """
    obstacle = (
        (before_admission.diagnose_queue_label(facts) or before_admission.diagnose_workload(facts))
        if diagnosis.outcome == "Runs"
        else None
    )
    unreachable = dict.fromkeys(
        as_sentence(state.message)
        for state in pod_states(facts)
        if state.reason == UNREACHABLE_REASON and state.step == "Joined"
    )
    notice = [facts.namespace_notice] if facts.namespace_notice and diagnosis.outcome in ("Runs", "Waits") else []
    obstacles = [obstacle.message] if obstacle else []
    moves = list(_move_notes(facts)) if diagnosis.outcome in ("Runs", "Waits") else []
    return [*notice, *obstacles, *moves, *unreachable, *facts.unread_reasons.values()]


def _move_notes(facts: JobFacts) -> Iterator[str]:
    """What the job's annotation names to leave, how many workers are left there, and what is ignored of it."""
    move_from = facts.job_object.move_from
    if known := [name for name in move_from.clusters if name in facts.worker_clusters or _may_exist(facts)]:
        workers = sum(state.cluster in known and state.role != names.HEAD for state in pod_states(facts))
        reason = as_sentence(text_field(mapping_field(facts.placement, "status"), "reason")) if workers else ""
        count = f"{workers or 'no'} worker{'' if workers == 1 else 's'}"
        yield (
            f"Its workers keep away from {printable_list(known, _MOST_CLUSTERS)} (annotation "
            f"{names.MOVE_FROM_ANNOTATION}); {count} of it {'is' if workers == 1 else 'are'} there now."
            f"{f' {reason}' if reason else ''}"
        )
    ignored = ignored_part(move_from, move_from.clusters if _may_exist(facts) else facts.worker_clusters)
    yield from filter(None, [f"The {ignored}." if ignored else "", facts.move_notice])


def _may_exist(facts: JobFacts) -> bool:
    """Whether any WorkerCluster may exist, because the user may not read them."""
    return "workerclusters" in facts.unread_reasons


def stage_states(diagnosis: Diagnosis) -> list[tuple[Stage, str]]:
    """Each stage with its state: `ok` before the diagnosed one, `-` after it."""
    current = STAGES.index(diagnosis.stage)
    outcome = "ok" if diagnosis.outcome in ("Runs", "Done") else diagnosis.outcome
    return [(stage, "ok" if i < current else outcome if i == current else "-") for i, stage in enumerate(STAGES)]


_MOST_CLUSTERS = 5  # that a note lists
# Reasons that do not hold up a job whose workers have all joined: it runs in the manager cluster, and a note says why.
_HARMLESS = ("NoQueue", "NoCheck")


def _all_joined(facts: JobFacts, states: list[PodState]) -> bool:
    wanted = after_admission.wanted_workers(facts.ray_cluster)
    workers = [state for state in states if state.role != names.HEAD]
    return (
        bool(facts.ray_cluster)
        and len(workers) >= wanted
        and len(states) > len(workers)
        and all(state.ready for state in states)
    )
