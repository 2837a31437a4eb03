"""How is told what was asked of a RayService: one job after the other, each as it would be told by itself?

It is no job of its own, so nothing is reckoned of it. Of a job that was asked for by itself, this changes nothing.
"""

from collections.abc import Sequence
from typing import Any

from adapter import names
from adapter.cli.job_reader import SelectedJobs
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import key_of


def combine_documents(selection: SelectedJobs, documents: Sequence[Document]) -> dict[str, Any]:
    """The document of a job, or those of a RayService's RayClusters."""
    if selection.service is None:
        return documents[0]
    namespace, name = key_of(selection.service)
    ray_clusters = [{"release": release, **one} for release, one in zip(selection.releases, documents, strict=True)]
    return {"kind": names.RAY_SERVICE, "namespace": namespace, "name": name, "rayClusters": ray_clusters}


def combine_texts(selection: SelectedJobs, texts: Sequence[str]) -> str:
    """The text of a job, or those of a RayService's RayClusters, each below a line that says what it is; lines ended."""
    if selection.service is None:
        return texts[0]
    namespace, name = key_of(selection.service)
    title = f"{names.RAY_SERVICE} {namespace}/{name}"
    if not texts:
        return f"{title} has no RayCluster yet: KubeRay makes it; see `kubectl -n {namespace} describe rayservice {name}`.\n"
    return "\n".join(f"{title}, {release}:\n\n{text}" for release, text in zip(selection.releases, texts, strict=True))
