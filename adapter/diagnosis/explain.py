"""Which one link keeps a job from running? It walks from the job over its Workload, its checks and its Placement to its pods and Ray.

The first link that does not hold is the answer: what comes after it cannot be otherwise. What a job that runs lacks all the same,
and what could not be read, are notes.
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
    place = parse_placement(facts.placement) if facts.placement else None
    return [read_pod_state(without_unplanned_slot(pod, place), facts) for pod in facts.pods]


def diagnose(facts: JobFacts) -> Diagnosis:
    """The link that holds the job up, or the end of its way."""
    states = pod_states(facts)
    if over := before_admission.diagnose_job(facts):
        return over
    held = before_admission.diagnose_queue_label(facts) or before_admission.diagnose_workload(facts)
    if held and not (held.reason in _HARMLESS and _all_joined(facts, states)):
        return held
    return (
        after_admission.diagnose_kuberay(facts, states)
        or after_admission.diagnose_pods(facts, states)
        or after_admission.diagnose_running(facts, states)
    )


def notes(facts: JobFacts, diagnosis: Diagnosis) -> list[str]:
    """What is to be said beside it."""
    lacks = (
        (before_admission.diagnose_queue_label(facts) or before_admission.diagnose_workload(facts))
        if diagnosis.outcome == "Runs"
        else None
    )
    unseen = dict.fromkeys(
        as_sentence(one.message)
        for one in pod_states(facts)
        if one.reason == UNREACHABLE_REASON and one.step == "Joined"
    )
    return [*([lacks.message] if lacks else []), *unseen, *facts.unread_reasons.values()]


def stage_states(diagnosis: Diagnosis) -> list[tuple[Stage, str]]:
    """Each stage of the way with what became of it: ok before the link, `-` after it."""
    reached = STAGES.index(diagnosis.stage)
    over = "ok" if diagnosis.outcome in ("Runs", "Done") else diagnosis.outcome
    return [(stage, "ok" if i < reached else over if i == reached else "-") for i, stage in enumerate(STAGES)]


# A job runs in the manager without these, and its user wonders why it does so there.
_HARMLESS = ("NoQueue", "NoCheck")


def _all_joined(facts: JobFacts, states: list[PodState]) -> bool:
    wanted = after_admission.wanted_workers(facts.ray_cluster)
    workers = [one for one in states if one.role != names.HEAD]
    return (
        bool(facts.ray_cluster)
        and len(workers) >= wanted
        and len(states) > len(workers)
        and all(s.ready for s in states)
    )
