"""The document about a job that `where` and `why` print; their tables are views of it.

Programs read its field names, which must not change. An unknown value is null.
"""

from dataclasses import asdict
from typing import Any

from adapter.diagnosis import explain
from adapter.diagnosis.job_facts import JobFacts, ray_cluster_name
from adapter.diagnosis.pod_state import PodState
from adapter.objects.unstructured import key_of

Document = dict[str, Any]


def describe_job(facts: JobFacts) -> Document:
    """Build the document of a job."""
    diagnosis = explain.diagnose(facts)
    return {
        "kind": facts.kind,
        "namespace": facts.namespace,
        "name": facts.name,
        "queue": facts.queue or None,
        "outcome": diagnosis.outcome,
        "link": {
            "stage": diagnosis.stage,
            "reason": diagnosis.reason,
            "object": diagnosis.object,
            "sentence": diagnosis.message,
            "todo": diagnosis.advice or None,
        },
        "steps": [{"stage": stage, "state": state} for stage, state in explain.stage_states(diagnosis)],
        "workload": key_of(facts.workload)[1] or None,
        "placement": _describe_placement(facts),
        "rayCluster": ray_cluster_name(facts.job, facts.kind) or None,
        "nodes": [_describe_node(state) for state in explain.pod_states(facts)],
        "notes": explain.notes(facts, diagnosis),
    }


def _describe_placement(facts: JobFacts) -> Document | None:
    if not facts.placement:
        return None
    status = facts.placement.get("status") or {}
    fields = {field: status.get(field) or None for field in ("state", "workers", "where", "reason")}
    return {"name": key_of(facts.placement)[1], **fields}


def _describe_node(pod_state: PodState) -> Document:
    fields = asdict(pod_state)
    nullable_fields = {
        field: fields[field] or None
        for field in ("group", "cluster", "zone", "node", "reason", "since", "slot", "message")
    }
    return {**fields, **nullable_fields}
