"""Gives the claims of a pod (DRA) the ResourceClaimTemplates of a worker cluster, and compares them with its share.

objects/claimed_resources.py says what quota they take.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from adapter.objects.named_objects import find_object, name_in_cluster
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import Raw, printable


def rename_claims(claims: Iterable[Raw], mapping: PodMapping, namespace: str) -> list[Raw]:
    """The claims with the templates that a WorkerCluster names; the claims of others stay."""
    return [_rename_claim(claim, mapping, namespace) for claim in claims]


def all_claims(spec: Raw, admitted_spec: Raw) -> list[Raw]:
    """The claims of a spec, and those that admission adds, which Kueue counts, too."""
    own = list(spec.get("resourceClaims") or ())
    known = {claim.get("name") for claim in own}
    return [*own, *(claim for claim in admitted_spec.get("resourceClaims") or () if claim.get("name") not in known)]


def excess_claims(pod_spec: Raw, template_spec: Raw) -> list[str]:
    """A text for each ResourceClaimTemplate of which a pod has more claims than its share."""
    claims, reserved = _claim_counts(pod_spec), _claim_counts(template_spec)
    return [
        f"claims of ResourceClaimTemplate {printable(name)}: {number} instead of {reserved[name]}"
        for name, number in claims.items()
        if number > reserved[name]
    ]


def _rename_claim(claim: Raw, mapping: PodMapping, namespace: str) -> Raw:
    name = str(claim.get("resourceClaimTemplateName") or "")
    entry = find_object(mapping.claim_templates, name, namespace) if name else None
    return {**claim, "resourceClaimTemplateName": name_in_cluster(entry, name)} if entry else claim


def _claim_counts(spec: Raw) -> Counter[str]:
    claims: Iterable[Mapping[str, object]] = spec.get("resourceClaims") or ()
    return Counter(str(name) for claim in claims if (name := claim.get("resourceClaimTemplateName")))
