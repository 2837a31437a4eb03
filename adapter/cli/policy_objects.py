"""What have admins written that AdmissionChecks refer to: DispatchPolicies, and what these refer to in their turn?"""

from adapter.admission.policy import Written
from adapter.cli.manager_reader import Look
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.resources import DISPATCH_POLICIES, MULTIKUEUE_CONFIGS


async def written(look: Look, clusters: list[Raw]) -> Written:
    """All of it beside the WorkerClusters, which are given; MultiKueueConfigs where a policy names one, for most managers have no
    such kind."""
    policies = {key_of(raw)[1]: raw for raw in await look.all(DISPATCH_POLICIES)}
    chosen = [(raw.get("spec") or {}).get("clusters") or {} for raw in policies.values()]
    if not any("multiKueueConfigRef" in one for one in chosen):
        return Written(policies, clusters)
    return Written(policies, clusters, {key_of(raw)[1]: raw for raw in await look.all(MULTIKUEUE_CONFIGS)})
