"""What have admins written that AdmissionChecks refer to: DispatchPolicies, and what these refer to in their turn?"""

from adapter.admission.policy import PolicyObjects
from adapter.cli.manager_reader import ManagerReader
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.resources import DISPATCH_POLICIES, MULTIKUEUE_CONFIGS


async def read_policies(reader: ManagerReader, clusters: list[Raw]) -> PolicyObjects:
    """All of it beside the WorkerClusters, which are given; MultiKueueConfigs where a policy names one, for most managers have no
    such kind."""
    policies = {key_of(raw)[1]: raw for raw in await reader.list_objects(DISPATCH_POLICIES)}
    chosen = [(raw.get("spec") or {}).get("clusters") or {} for raw in policies.values()]
    if not any("multiKueueConfigRef" in one for one in chosen):
        return PolicyObjects(policies, clusters)
    return PolicyObjects(
        policies, clusters, {key_of(raw)[1]: raw for raw in await reader.list_objects(MULTIKUEUE_CONFIGS)}
    )
