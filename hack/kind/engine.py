"""Docker's engine: whether it can run three clusters, and the images that their nodes get from it.

Nodes pull nothing: each would pull Ray's image for itself, and Docker Hub limits how often.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.kind.clusters import KindCluster
from hack.kind.programs import run_docker, run_kind
from hack.kind.record import Record
from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError, step
from hack.release.overlays import DEVELOPED

PROGRAMS = ("docker", "git", "kind", "kubectl")  # git is for kubectl, which reads KubeRay's kustomization by it
KUEUE_IMAGE = f"registry.k8s.io/kueue/kueue:{versions.KUEUE}"
KUBERAY_IMAGE = f"quay.io/kuberay/operator:{versions.KUBERAY}"
RAY_IMAGE = f"rayproject/ray:{versions.RAY}"
# With fewer, the requests of the control plane, Kueue and Rayspan leave the manager no room for a job.
ENOUGH_PROCESSORS = 4
LEAST_PROCESSORS = 2
LEAST_MEMORY, ENOUGH_MEMORY = 7 * 1024**3, 10 * 10**9  # three clusters took 7.8 GiB while the job ran
# From this API on, an engine may keep images of several platforms, and saves all of them unless told.
_PLATFORM_API = (1, 48)
_INOTIFY = Path("/proc/sys/fs/inotify")
_ENOUGH_INOTIFY = {"max_user_instances": 512, "max_user_watches": 524288}  # as kind's known issues advise


def check() -> dict[str, Any]:
    """What `docker info` prints; raises LabError with all that is missing."""
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        raise LabError(f"It needs {_listed(PROGRAMS)}; {_listed(missing)} cannot be found.")
    info: dict[str, Any] = json.loads(run_docker("info", "--format", "{{json .}}"))
    if faults := list(find_faults(info)):
        raise LabError(" ".join(faults))
    return info


def find_faults(info: Mapping[str, Any]) -> Iterator[str]:
    """What keeps three clusters from running, in sentences; `info` is what `docker info` prints."""
    if errors := info.get("ServerErrors"):
        yield f"Docker does not answer: {' '.join(errors)}"
        return
    if info["NCPU"] < LEAST_PROCESSORS:
        yield f"Docker has {info['NCPU']} processor; three clusters need {LEAST_PROCESSORS} at least."
    if info["MemTotal"] < LEAST_MEMORY:
        yield (
            f"Docker has {info['MemTotal'] / 1024**3:.1f} GiB of memory; three clusters need "
            f"{LEAST_MEMORY // 1024**3}. Docker Desktop gives more under Settings > Resources."
        )


def hints(info: Mapping[str, Any]) -> Iterator[str]:
    """What may go wrong here, in sentences."""
    yield from engine_hints(info)
    yield from inotify_hints(_INOTIFY)
    if versions.KIND.removeprefix("v") not in (release := run_kind("version").strip()):
        yield f"The node image was published with kind {versions.KIND}, and this is {release}."


def engine_hints(info: Mapping[str, Any]) -> Iterator[str]:
    if info["MemTotal"] < ENOUGH_MEMORY:
        yield f"Docker has less than {ENOUGH_MEMORY // 10**9} GB of memory, so pods may be killed for lack of it."
    if info.get("CgroupVersion") == "1":
        yield "This machine has cgroup v1, with which the published node images do not start."


def inotify_hints(place: Path) -> Iterator[str]:
    """What to do about small limits; nothing where they are large enough, or are not this machine's."""
    for name, enough in _ENOUGH_INOTIFY.items():
        file = place / name
        if file.exists() and (limit := int(file.read_text())) < enough:
            yield (
                f"fs.inotify.{name} is {limit}. If pods fail with `too many open files`, run "
                f"`sudo sysctl fs.inotify.{name}={enough}`."
            )


def address(cluster: KindCluster) -> str:
    """The address of a cluster's node in Docker's network."""
    form = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
    return run_docker("inspect", "--format", form, cluster.node).strip()


def build_controller() -> None:
    """Build the controller's image from this checkout."""
    run_docker("build", "--tag", DEVELOPED, REPO, long=True)


def pull_images() -> None:
    """Pull those that Docker does not have for its own architecture."""
    architecture = _server()["Arch"]
    for image in (KUEUE_IMAGE, KUBERAY_IMAGE, RAY_IMAGE):
        if _inspect(image, "{{.Architecture}}") != architecture:
            with step(f"docker: pull {image}"):
                source = published_name(image, architecture)
                run_docker("pull", "--quiet", source, long=True)
                if source != image:
                    run_docker("tag", source, image)


def published_name(image: str, architecture: str) -> str:
    """The name under which an image is published for this architecture: Ray's for arm64 has a name of its own."""
    return f"{image}-aarch64" if image == RAY_IMAGE and architecture == "arm64" else image


def load_images(
    images: Mapping[str, Sequence[KindCluster]],
    records: Mapping[str, Record],
    place: Path,
    restart: Callable[[], None],
) -> None:
    """Load each image into its clusters, where they have another one or none; `restart` the controller for its own.

    The record is written last, so that nothing is left out after an interrupt.
    """
    for image, clusters in images.items():
        image_id = _inspect(image, "{{.Id}}")
        outdated = [cluster for cluster in clusters if records[cluster.name].images.get(image) != image_id]
        if outdated:
            with step(f"kind: load {image} into {_listed([cluster.name for cluster in outdated])}"):
                _load(image, outdated, place / "image.tar")
            if image == DEVELOPED:
                restart()
            for cluster in outdated:
                records[cluster.name].add_image(image, image_id)


def _load(image: str, clusters: Sequence[KindCluster], archive: Path) -> None:
    """By an archive: `kind load docker-image` saves the image for each cluster, and fails with images of several
    platforms (kind issue 3795)."""
    try:
        run_docker("save", *_platform_option(), "--output", archive, image, long=True)
        for cluster in clusters:
            run_kind("load", "image-archive", archive, "--name", cluster.kind, long=True)
    finally:
        archive.unlink(missing_ok=True)


def _platform_option() -> list[str]:
    client = json.loads(run_docker("version", "--format", "{{json .Client}}"))
    server = _server()
    return platform_option([client["ApiVersion"], server["ApiVersion"]], server["Arch"])


def platform_option(api_versions: Sequence[str], architecture: str) -> list[str]:
    """The option of `docker save` for one platform; none where the client or the engine does not know it."""
    is_known = min(tuple(map(int, version.split("."))) for version in api_versions) >= _PLATFORM_API
    return [f"--platform=linux/{architecture}"] if is_known else []


def _server() -> dict[str, str]:
    server: dict[str, str] = json.loads(run_docker("version", "--format", "{{json .Server}}"))
    return server


def _inspect(image: str, form: str) -> str:
    """A property of an image that Docker has; empty if it has none of that name."""
    return run_docker("image", "inspect", "--format", form, image, check=False).strip()


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
