"""Which one link keeps a job from running? It walks from the job over its Workload, its checks and its Placement to its pods and Ray.

The first link that does not hold is the answer: what comes after it cannot be otherwise. What a job that runs lacks all the same,
and what could not be read, are notes.
"""

from adapter import names
from adapter.diagnosis import after_admission, before_admission
from adapter.diagnosis.blocker import STAGES, Link, Stage, sentence
from adapter.diagnosis.job_facts import Facts
from adapter.diagnosis.pod_state import UNSEEN, PodState, read
from adapter.objects.placement import placement
from adapter.objects.worker_pod import without_unplanned_slot


def pods(facts: Facts) -> list[PodState]:
    """The Ray nodes of a job, the head first."""
    place = placement(facts.placement) if facts.placement else None
    return [read(without_unplanned_slot(pod, place), facts) for pod in facts.pods]


def walk(facts: Facts) -> Link:
    """The link that holds the job up, or the end of its way."""
    states = pods(facts)
    if over := before_admission.of_job(facts):
        return over
    held = before_admission.without_queue(facts) or before_admission.of_workload(facts)
    if held and not (held.reason in _HARMLESS and _all_joined(facts, states)):
        return held
    return (
        after_admission.of_kuberay(facts, states)
        or after_admission.of_pods(facts, states)
        or after_admission.runs(facts, states)
    )


def notes(facts: Facts, link: Link) -> list[str]:
    """What is to be said beside it."""
    lacks = (
        (before_admission.without_queue(facts) or before_admission.of_workload(facts))
        if link.outcome == "Runs"
        else None
    )
    unseen = dict.fromkeys(
        sentence(one.message) for one in pods(facts) if one.reason == UNSEEN and one.step == "Joined"
    )
    return [*([lacks.sentence] if lacks else []), *unseen, *facts.unread.values()]


def steps(link: Link) -> list[tuple[Stage, str]]:
    """Each stage of the way with what became of it: ok before the link, `-` after it."""
    reached = STAGES.index(link.stage)
    over = "ok" if link.outcome in ("Runs", "Done") else link.outcome
    return [(stage, "ok" if i < reached else over if i == reached else "-") for i, stage in enumerate(STAGES)]


# A job runs in the manager without these, and its user wonders why it does so there.
_HARMLESS = ("NoQueue", "NoCheck")


def _all_joined(facts: Facts, states: list[PodState]) -> bool:
    wanted = after_admission.wanted_workers(facts.ray_cluster)
    workers = [one for one in states if one.role != names.HEAD]
    return (
        bool(facts.ray_cluster)
        and len(workers) >= wanted
        and len(states) > len(workers)
        and all(s.ready for s in states)
    )
