"""Renders the answer for a RayService, one section per RayCluster. A single job is left as it is."""

from collections.abc import Sequence
from typing import Any

from adapter import names
from adapter.cli.job_reader import SelectedJobs
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import key_of


def combine_documents(selection: SelectedJobs, documents: Sequence[Document]) -> dict[str, Any]:
    """The document of a job, or one document with those of a RayService's RayClusters."""
    if selection.service is None:
        return documents[0]
    namespace, name = key_of(selection.service)
    ray_clusters = [
        {"release": release, **document} for release, document in zip(selection.releases, documents, strict=True)
    ]
    return {"kind": names.RAY_SERVICE, "namespace": namespace, "name": name, "rayClusters": ray_clusters}


def combine_texts(selection: SelectedJobs, texts: Sequence[str]) -> str:
    """The text of a job, or those of a RayService's RayClusters, each below a title."""
    if selection.service is None:
        return texts[0]
    namespace, name = key_of(selection.service)
    title = f"{names.RAY_SERVICE} {namespace}/{name}"
    if not texts:
        return (
            f"{title} has no RayCluster yet: KubeRay makes it; "
            f"see `kubectl -n {namespace} describe rayservice {name}`.\n"
        )
    return "\n".join(f"{title}, {release}:\n\n{text}" for release, text in zip(selection.releases, texts, strict=True))
