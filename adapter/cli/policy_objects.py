"""Reads the DispatchPolicies, and the objects that the policies refer to."""

from adapter.admission.policy import PolicyObjects
from adapter.cli.manager_reader import ManagerReader
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.kube.resources import DISPATCH_POLICIES, MULTIKUEUE_CONFIGS


async def read_policies(reader: ManagerReader, clusters: list[Raw]) -> PolicyObjects:
    """The policies with `clusters`, and the MultiKueueConfigs if a policy names one.

    Otherwise the MultiKueueConfigs are not read, because most managers do not serve the kind.
    """
    policies = {key_of(raw)[1]: raw for raw in await reader.list_objects(DISPATCH_POLICIES)}
    selections = [(raw.get("spec") or {}).get("clusters") or {} for raw in policies.values()]
    if not any("multiKueueConfigRef" in selection for selection in selections):
        return PolicyObjects(policies, clusters)
    return PolicyObjects(
        policies, clusters, {key_of(raw)[1]: raw for raw in await reader.list_objects(MULTIKUEUE_CONFIGS)}
    )
