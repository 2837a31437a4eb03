"""What a WorkerCluster names for its pods (`spec.pods`), looked for in the worker cluster: the names, and the findings.

A pod that names an account, a RuntimeClass or a priority class is dry-run there, because the API server's own admission
denies one that does not exist, and the account may create pods. Nothing is stored. Claims and ResourceClaimTemplates
are read, where the account may. No object shows a scheduler, but pods show who scheduled them.
`cli/preflight/named_objects` makes the requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from adapter import names
from adapter.objects.named_objects import NamedObject, counts_for, name_in_cluster
from adapter.objects.reason import clause
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import (
    Raw,
    condition,
    format_time,
    key_of,
    mapping_field,
    meta,
    printable,
    updated_condition,
)
from adapter.preflight.preflight_facts import Finding, FindingOutcome, NamedAnswer, NamedKind, NamedThere

MAX_NAMES: Final = 64  # that are looked for in one cluster
CHECK: Final = "Names"
_MAX_LISTED = 8  # in one sentence
_MAX_WORDS = 300  # characters of a foreign message
_MAX_CONDITION = 2000  # characters of a condition's message
# The field of a pod that names one.
POD_FIELDS: Final[Mapping[NamedKind, str]] = {
    "service account": "serviceAccountName",
    "RuntimeClass": "runtimeClassName",
    "priority class": "priorityClassName",
    "scheduler": "schedulerName",
}
_NAMESPACED: Final = ("service account", "claim", "ResourceClaimTemplate")


def named_in_cluster(mapping: PodMapping, namespace: str) -> tuple[NamedThere, ...]:
    """The objects that a mapping names for a namespace, each once; `*` without another name there names none."""
    of_all: Iterable[tuple[NamedKind, str, str]] = (
        ("service account", "serviceAccountName", mapping.service_account),
        ("RuntimeClass", "runtimeClassName", mapping.runtime_class),
        ("scheduler", "schedulerName", mapping.scheduler),
    )
    listed: Iterable[tuple[NamedKind, str, Sequence[NamedObject]]] = (
        ("service account", "serviceAccounts", mapping.service_accounts),
        ("claim", "persistentVolumeClaims", mapping.claims),
        ("ResourceClaimTemplate", "resourceClaimTemplates", mapping.claim_templates),
        ("RuntimeClass", "runtimeClasses", mapping.runtime_classes),
        ("priority class", "priorityClasses", mapping.priority_classes),
        ("scheduler", "schedulers", mapping.schedulers),
    )
    named = [NamedThere(kind, field, name, of_all_pods=True) for kind, field, name in of_all if name]
    named += [
        NamedThere(kind, field, name)
        for kind, field, entries in listed
        for entry in entries
        if counts_for(entry.namespaces, namespace) and (name := name_in_cluster(entry, entry.name)) != "*"
    ]
    first = {(entry.kind, entry.name): entry for entry in reversed(named)}
    return tuple(entry for entry in named if first[entry.kind, entry.name] is entry)


def trial_pod(plain: Mapping[str, Any], entry: NamedThere) -> dict[str, Any]:
    """The pod to dry-run: a plain one that names the object."""
    return {**plain, "spec": {**plain["spec"], POD_FIELDS[entry.kind]: entry.name}}


def named_findings(cluster: str, namespace: str, answers: Sequence[NamedAnswer]) -> Iterator[Finding]:
    """A finding for each object that is missing, and one for all that could not be looked for."""
    for answer in answers:
        if answer.presence == "missing":
            outcome: FindingOutcome = "failure" if answer.named.of_all_pods else "warning"
            yield Finding((cluster,), CHECK, outcome, _missing_text(cluster, namespace, answer))
    if unknown := [answer for answer in answers if answer.presence == "unknown"]:
        yield Finding((cluster,), CHECK, "warning", _unknown_text(cluster, namespace, unknown))
    if answers and all(answer.presence == "exists" for answer in answers):
        yield Finding((cluster,), CHECK, "ok", f"What its WorkerCluster names for namespace {namespace} exists.")


def _missing_text(cluster: str, namespace: str, answer: NamedAnswer) -> str:
    entry, name = answer.named, printable(answer.named.name)
    field = f"{names.WORKER_CLUSTER_KIND} {cluster} names {name} in spec.pods.{entry.field}"
    place = f"namespace {namespace} there" if entry.kind in _NAMESPACED else "that cluster"
    words = f": {clause(printable(answer.words, _MAX_WORDS))}" if answer.words else ""
    remedy = "change the field" if entry.of_all_pods else f"leave namespace {namespace} out of the entry's namespaces"
    return f"{field}, and {place} has no such {entry.kind}{words}; create it there, or {remedy}."


def _unknown_text(cluster: str, namespace: str, unknown: Sequence[NamedAnswer]) -> str:
    by_words = dict[str, list[str]]()
    for answer in unknown:
        by_words.setdefault(clause(printable(answer.words, _MAX_WORDS)), []).append(_title(answer.named))
    parts = [f"{_listed(titles)} ({words})" for words, titles in by_words.items()]
    return (
        f"Whether {' and '.join(parts)} exist in {cluster} for namespace {namespace} could not be seen; a worker waits "
        "there without a node if its claim, its ResourceClaimTemplate or its scheduler is missing."
    )


def _title(entry: NamedThere) -> str:
    return f"{entry.kind} {printable(entry.name)}"


def _listed(titles: Sequence[str]) -> str:
    more = len(titles) - _MAX_LISTED
    return ", ".join([*titles[:_MAX_LISTED], *([f"{more} more"] if more > 0 else [])])


def status_patch(
    cluster: Raw, answers: Sequence[NamedAnswer], findings: Iterable[Finding], now: datetime
) -> dict[str, Any] | None:
    """The apply patch of the WorkerCluster's condition NamesExist, without it if it names nothing; None: no change.

    Without a name for this namespace the condition stays, as it is about another one.
    """
    before = condition(cluster, names.NAMES_EXIST)
    if not answers and (not before or mapping_field(mapping_field(cluster, "spec"), "pods")):
        return None
    name, uid = key_of(cluster)[1], meta(cluster).get("uid")
    texts = [finding.message for finding in findings if finding.check == CHECK and name in finding.clusters]
    wanted = {
        "type": names.NAMES_EXIST,
        **dict(zip(("status", "reason"), _verdict(answers), strict=True)),
        "message": printable(" ".join(texts), _MAX_CONDITION),
        "observedGeneration": meta(cluster).get("generation"),
    }
    conditions = [updated_condition(before, wanted, format_time(now))] if answers else []
    kind = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND}
    return {**kind, "metadata": {"name": name, "uid": uid}, "status": {"conditions": conditions}}


def _verdict(answers: Sequence[NamedAnswer]) -> tuple[str, str]:
    presences = {answer.presence for answer in answers}
    if "missing" in presences:
        return "False", names.ConditionReason.NAMES_MISSING
    if "unknown" in presences:
        return "Unknown", names.ConditionReason.NAMES_NOT_SEEN
    return "True", names.ConditionReason.NAMES_EXIST
