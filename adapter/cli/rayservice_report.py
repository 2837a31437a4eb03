"""How is told what was asked of a RayService: one job after the other, each as it would be told by itself?

It is no job of its own, so nothing is reckoned of it. Of a job that was asked for by itself, this changes nothing.
"""

from collections.abc import Sequence
from typing import Any

from adapter import names
from adapter.cli.job_reader import Asked
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import key_of


def document(asked: Asked, found: Sequence[Document]) -> dict[str, Any]:
    """The document of a job, or those of a RayService's RayClusters."""
    if asked.service is None:
        return found[0]
    namespace, name = key_of(asked.service)
    ray_clusters = [{"release": release, **one} for release, one in zip(asked.releases, found, strict=True)]
    return {"kind": names.RAY_SERVICE, "namespace": namespace, "name": name, "rayClusters": ray_clusters}


def rendered(asked: Asked, found: Sequence[str]) -> str:
    """The text of a job, or those of a RayService's RayClusters, each below a line that says what it is; lines ended."""
    if asked.service is None:
        return found[0]
    namespace, name = key_of(asked.service)
    title = f"{names.RAY_SERVICE} {namespace}/{name}"
    if not found:
        return f"{title} has no RayCluster yet: KubeRay makes it; see `kubectl -n {namespace} describe rayservice {name}`.\n"
    return "\n".join(f"{title}, {release}:\n\n{text}" for release, text in zip(asked.releases, found, strict=True))
