"""Which RayCluster does KubeRay make of a RayService, the first one and that of each upgrade?

As it would be submitted: its labels, the queue among them, and its annotations go over, and its spec is spec.rayClusterConfig
(kuberay:ray-operator/controllers/ray/rayservice_controller.go, constructRayClusterForRayService). Its name is the service's here,
where KubeRay adds some letters. Whoever wrote the RayService is no API server: who reads the RayCluster checks it.
"""

from typing import Any

from adapter.objects.unstructured import Raw


def ray_cluster(service: Raw) -> dict[str, Any]:
    """The RayCluster of a RayService."""
    spec = service.get("spec")
    found = spec.get("rayClusterConfig") if isinstance(spec, dict) else spec
    return {
        "apiVersion": service.get("apiVersion"),
        "kind": "RayCluster",
        "metadata": service.get("metadata"),
        "spec": found,
    }
