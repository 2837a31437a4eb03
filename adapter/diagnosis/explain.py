"""Diagnoses a job at the first stage that holds it up: job, Workload, admission checks, Placement, pods, Ray.

Later stages cannot proceed before that stage. Notes name what a running job lacks, and what was not readable.
"""

from adapter import names
from adapter.diagnosis import after_admission, before_admission
from adapter.diagnosis.blocker import STAGES, Diagnosis, Stage, as_sentence
from adapter.diagnosis.job_facts import JobFacts
from adapter.diagnosis.pod_state import UNREACHABLE_REASON, PodState, read_pod_state
from adapter.objects.placement import parse_placement
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
    return [*notice, *obstacles, *unreachable, *facts.unread_reasons.values()]


def stage_states(diagnosis: Diagnosis) -> list[tuple[Stage, str]]:
    """Each stage with its state: `ok` before the diagnosed one, `-` after it."""
    current = STAGES.index(diagnosis.stage)
    outcome = "ok" if diagnosis.outcome in ("Runs", "Done") else diagnosis.outcome
    return [(stage, "ok" if i < current else outcome if i == current else "-") for i, stage in enumerate(STAGES)]


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
