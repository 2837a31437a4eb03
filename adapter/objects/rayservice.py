"""The RayClusters of a RayService: the one that KubeRay makes of it, at first and for each upgrade, and their names.

Labels (the queue among them) and annotations are copied, and the RayCluster's spec is spec.rayClusterConfig
(kuberay:ray-operator/controllers/ray/rayservice_controller.go, constructRayClusterForRayService). Its name here is the
RayService's, to which KubeRay adds some letters. The RayService may be invalid, since no API server has checked it:
readers of the RayCluster must check it.
"""

from typing import Any, Final

from adapter.objects.unstructured import Raw, mapping_field, text_field

# Fields of a RayService's status that name a RayCluster, the one that serves first.
_RELEASE_FIELDS: Final = {"active": "activeServiceStatus", "pending": "pendingServiceStatus"}


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


def ray_cluster_names(service: Raw) -> dict[str, str]:
    """The names of a RayService's RayClusters by release: active, and pending while it is upgraded."""
    status = mapping_field(service, "status")
    by_release = {
        release: text_field(mapping_field(status, field), "rayClusterName")
        for release, field in _RELEASE_FIELDS.items()
    }
    return {release: name for release, name in by_release.items() if name}
