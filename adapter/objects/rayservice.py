"""Builds the RayCluster that KubeRay makes of a RayService, at first and for each upgrade.

Labels (the queue among them) and annotations are copied, and the RayCluster's spec is spec.rayClusterConfig
(kuberay:ray-operator/controllers/ray/rayservice_controller.go, constructRayClusterForRayService). Its name here is the
RayService's, to which KubeRay adds some letters. The RayService may be invalid, since no API server has checked it:
readers of the RayCluster must check it.
"""

from typing import Any

from adapter.objects.unstructured import Raw


def ray_cluster(service: Raw) -> dict[str, Any]:
    """The RayCluster of a RayService."""
    spec = service.get("spec")
    config = spec.get("rayClusterConfig") if isinstance(spec, dict) else spec
    return {
        "apiVersion": service.get("apiVersion"),
        "kind": "RayCluster",
        "metadata": service.get("metadata"),
        "spec": config,
    }
