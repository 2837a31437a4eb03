"""What do `where` and `why` say of a job: one document, of which the tables are views?

Names are camelCase and stay, for programs read them; what is not known is null.
"""

from dataclasses import asdict
from typing import Any

from adapter.diagnosis import explain
from adapter.diagnosis.job_facts import JobFacts, ray_cluster_name
from adapter.diagnosis.pod_state import PodState
from adapter.objects.unstructured import key_of

Document = dict[str, Any]


def describe_job(facts: JobFacts) -> Document:
    """All that is known of the job."""
    link = explain.diagnose(facts)
    return {
        "kind": facts.kind,
        "namespace": facts.namespace,
        "name": facts.name,
        "queue": facts.queue or None,
        "outcome": link.outcome,
        "link": {
            "stage": link.stage,
            "reason": link.reason,
            "object": link.object,
            "sentence": link.message,
            "todo": link.advice or None,
        },
        "steps": [{"stage": stage, "state": state} for stage, state in explain.stage_states(link)],
        "workload": key_of(facts.workload)[1] or None,
        "placement": _describe_placement(facts),
        "rayCluster": ray_cluster_name(facts.job, facts.kind) or None,
        "nodes": [_describe_node(one) for one in explain.pod_states(facts)],
        "notes": explain.notes(facts, link),
    }


def _describe_placement(facts: JobFacts) -> Document | None:
    if not facts.placement:
        return None
    status = facts.placement.get("status") or {}
    said = {field: status.get(field) or None for field in ("state", "workers", "where", "reason")}
    return {"name": key_of(facts.placement)[1], **said}


def _describe_node(pod_state: PodState) -> Document:
    """A Ray node, by its pod."""
    found = asdict(pod_state)
    known = {
        field: found[field] or None
        for field in ("group", "cluster", "zone", "node", "reason", "since", "slot", "message")
    }
    return {**found, **known}
