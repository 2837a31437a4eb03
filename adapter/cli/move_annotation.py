"""The annotation of a moved job: on the job itself, and on the RayClusters of a RayService.

KubeRay copies the annotation of a RayService to the RayClusters that it creates later, and to none that exists.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.cli import common
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE
from adapter.cli.job_reader import JOB_KINDS
from adapter.objects.move_from import MAX_LENGTH, split_names
from adapter.objects.unstructured import Key, Raw, annotation, controller_uid, key_of, meta, uid_of
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import RAY_CLUSTERS

MAX_ATTEMPTS = 5  # to write an annotation that other clients write, too


class MoveRefused(Exception):
    """The annotation was not written everywhere; the text is a sentence."""

    def __init__(self, sentence: str, exit_code: int = EXIT_ERROR) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A RayJob, RayCluster or RayService with a queue, as it was read first."""

    kind: str
    raw: Raw
    clusters: tuple[str, ...]  # that its workers are to leave
    command: str = ""  # `kubectl rayspan move` for this job, without the clusters

    @property
    def key(self) -> Key:
        return key_of(self.raw)

    @property
    def is_service(self) -> bool:
        return self.kind == names.RAY_SERVICE

    @property
    def word(self) -> str:
        return f"{self.kind.lower()}/{self.key[1]}"

    @property
    def title(self) -> str:
        return f"{self.kind} {'/'.join(self.key)}"

    @property
    def path(self) -> str:
        return JOB_KINDS[self.kind.lower()][1].path(*self.key)

    def command_from(self, clusters: Iterable[str]) -> str:
        return " ".join([self.command, *(f"--from {name}" for name in clusters)])

    @property
    def resume_hint(self) -> str:
        command = self.command_from(self.clusters)
        return f"{self.word} continues to move; `{command}` watches again, and `{command} --cancel` stops it."


async def list_ray_clusters(client: Client, service: MovedJob) -> list[Raw]:
    """The RayClusters of a RayService, also one that its status does not name yet."""
    selector = f"{names.RAY_ORIGIN_LABEL}={names.RAY_SERVICE}"
    try:
        listed, _ = await list_all(client, RAY_CLUSTERS.path(service.key[0]), labelSelector=selector)
    except ApiError as error:
        if error.status != 403:
            raise
        sentence = f"You may not read the RayClusters of {service.title}, and each needs the annotation"
        raise MoveRefused(f"{sentence}; {_remedy(service, error)}") from None
    return [raw for raw in listed if controller_uid(raw) == uid_of(service.raw)]


class AnnotationWriter:
    """Adds the clusters of a moved job to annotations, or removes them; other clusters stay there."""

    def __init__(self, client: Client, job: MovedJob, *, is_cancelled: bool = False) -> None:
        """`is_cancelled`: remove the clusters, or all if the job has none."""
        self._client, self._job, self._is_cancelled = client, job, is_cancelled
        self._change = _without(job.clusters) if is_cancelled else _with(job.clusters)
        self._changed: list[str] = []  # titles of objects

    async def write(self, ray_clusters: Sequence[Raw]) -> bool:
        """Write to the job, and then to the RayClusters of a RayService; whether that changed any of them."""
        for raw in (self._job.raw, *ray_clusters):
            self._check_length(raw)
        await self._write_or_explain(self._job.title, self._job.path, self._job.raw)
        for raw in ray_clusters:
            await self.write_to_ray_cluster(raw)
        return bool(self._changed)

    async def write_to_ray_cluster(self, raw: Raw, attempts: int = MAX_ATTEMPTS) -> bool:
        """Write to a RayCluster, unless KubeRay deletes it; whether that changed it."""
        if meta(raw).get("deletionTimestamp"):
            return False
        key = key_of(raw)
        try:
            return await self._write_or_explain(f"RayCluster {'/'.join(key)}", RAY_CLUSTERS.path(*key), raw, attempts)
        except ApiError as error:
            if error.not_found:
                return False
            raise

    async def _write_or_explain(self, title: str, path: str, raw: Raw, attempts: int = MAX_ATTEMPTS) -> bool:
        try:
            is_changed = await self._patch(path, raw, attempts)
        except ApiError as error:
            if error.status != 403:
                raise
            raise MoveRefused(self._forbidden_message(title, error)) from None
        self._changed += [title] if is_changed else []
        return is_changed

    async def _patch(self, path: str, raw: Raw, attempts: int) -> bool:
        """Change the annotation unless that changes nothing; another client's write is read first, and stays."""
        uid = uid_of(raw)
        for attempt in range(1, attempts + 1):
            self._check_length(raw)
            wanted = self._wanted_annotation(raw)
            if wanted is None:
                return False
            metadata = {"uid": uid, "resourceVersion": meta(raw).get("resourceVersion")}
            body: dict[str, Any] = {
                "metadata": {**metadata, "annotations": {names.MOVE_FROM_ANNOTATION: wanted or None}}
            }
            try:
                await self._client.merge_patch(path, body)
                return True
            except ApiError as error:
                if not error.is_conflict or attempt == attempts:
                    raise
            raw = await self._client.get(path)
        return False

    def _wanted_annotation(self, raw: Raw) -> str | None:
        """The new text, empty to remove the annotation; None if the present text names the same clusters."""
        before = annotation(raw, names.MOVE_FROM_ANNOTATION)
        after = self._change(split_names(before))
        is_same = before == ",".join(after) or (after and after == split_names(before))
        return None if is_same else ",".join(after)

    def _check_length(self, raw: Raw) -> None:
        """Refuse to add to an annotation that the controller would ignore as too long."""
        wanted = self._wanted_annotation(raw) or ""
        if self._is_cancelled or len(wanted) <= MAX_LENGTH:
            return
        name = "/".join(key_of(raw))
        raise MoveRefused(
            f"The annotation {names.MOVE_FROM_ANNOTATION} of {name} would have {len(wanted)} characters, and may have "
            f"{MAX_LENGTH}: name fewer clusters, or remove some with --cancel.",
            EXIT_USAGE,
        )

    def _forbidden_message(self, title: str, error: ApiError) -> str:
        changed = f" (already changed: {' and '.join(self._changed)})" if self._changed else ""
        return f"You may not change {title}{changed}; {_remedy(self._job, error)}"


def _remedy(job: MovedJob, error: ApiError) -> str:
    command = (
        f"kubectl -n {job.key[0]} create rolebinding {names.USER_ROLE} --clusterrole={names.USER_ROLE} "
        f"{common.rolebinding_subject(error)}"
    )
    return f"an administrator of the manager cluster can allow it with `{command}`."


Change = Callable[[tuple[str, ...]], tuple[str, ...]]


def _with(clusters: Sequence[str]) -> Change:
    return lambda before: tuple(dict.fromkeys((*before, *clusters)))


def _without(clusters: Sequence[str]) -> Change:
    """Remove these clusters, or all if none is given."""
    return lambda before: tuple(name for name in before if clusters and name not in clusters)
