"""Whether some worker cluster of a policy names all that a pod template needs there.

Each cluster decides for itself: the planner leaves out those that name less (`planning.plan_request`). Here a job is
judged as a whole, and the sentence says what an administrator can write.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from adapter import names
from adapter.objects import specs
from adapter.objects.required_objects import (
    RequiredKind,
    RequiredObject,
    can_be_named,
    naming_line,
    naming_note,
    required_objects,
    unnamed_objects,
    unnamed_reason,
)
from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.unstructured import Raw, key_of

_MAX_CLUSTERS = 3  # in one sentence
_ALTERNATIVES: Mapping[RequiredKind, str] = {
    "serviceAccount": "remove it to use the default account there",
    "serviceAccountToken": "remove the source",
    "persistentVolumeClaim": "use emptyDir or object storage",
    "hostPath": "use emptyDir or object storage",
    "runtimeClass": "remove it to use the default runtime there",
    "resourceClaimTemplate": "ask for devices in resources.limits",
}


def needed_in_clusters(templates: Iterable[Raw]) -> tuple[RequiredObject, ...]:
    """What the pods of these templates need of their worker cluster, each object once."""
    all_needed = (needed for template in templates for needed in required_objects(template.get("spec") or {}))
    return tuple(dict.fromkeys(all_needed))


def read_mappings(clusters: Iterable[Raw]) -> dict[str, PodMapping] | None:
    """The pod mappings by WorkerCluster; None if a spec cannot be read, which is no reason to reject a job for good."""
    try:
        return {key_of(raw)[1]: specs.parse_worker_cluster(raw).pods for raw in clusters}
    except specs.InvalidSpec:
        return None


def naming_problems(
    required: Iterable[RequiredObject], mappings: Mapping[str, PodMapping], namespace: str
) -> Iterator[str]:
    """A fragment for each object that no cluster names, or one fragment if no cluster names all; none if one does."""
    required = tuple(required)
    unnamed = {
        cluster: unnamed_objects(required, mapping, namespace)
        for cluster, mapping in (mappings or {"": NO_MAPPING}).items()
    }
    if not required or not all(unnamed.values()):
        return
    nowhere = [needed for needed in required if all(needed in objects for objects in unnamed.values())]
    for needed in nowhere:
        yield _nowhere_text(needed, [*mappings], namespace)
    if not nowhere:
        parts = (
            f"on {cluster}, {unnamed_reason(objects, mappings[cluster], namespace)}"
            for cluster, objects in islice(unnamed.items(), _MAX_CLUSTERS)
        )
        yield f"no {names.WORKER_CLUSTER_KIND} of the policy names all that its pods need; {'; '.join(parts)}"


def _nowhere_text(needed: RequiredObject, clusters: list[str], namespace: str) -> str:
    alternative = _ALTERNATIVES[needed.kind]
    if not can_be_named(needed):
        return f"{needed}: no {names.WORKER_CLUSTER_KIND} can name it; {alternative}"
    scope = f" for namespace {namespace}" if namespace else ""
    return (
        f"{needed}: no {names.WORKER_CLUSTER_KIND} of the policy names it{scope}; an administrator can add "
        f"{naming_line(needed, namespace)} to {_cluster_list(clusters)}{naming_note(needed)}, or "
        f"{alternative}"
    )


def _cluster_list(clusters: list[str]) -> str:
    if not clusters:
        return f"a {names.WORKER_CLUSTER_KIND} of the policy"
    more = ["another of the policy"] if len(clusters) > _MAX_CLUSTERS else []
    *first, last = [*clusters[:_MAX_CLUSTERS], *more]
    return f"{names.WORKER_CLUSTER_KIND} {', '.join(first)}{' or ' if first else ''}{last}"
