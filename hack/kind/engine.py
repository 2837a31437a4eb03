"""Docker's engine: whether it can run three clusters, and the images that their nodes get from it.

Nodes pull nothing: each would pull Ray's two gigabytes for itself, and Docker Hub limits how often.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.kind.clusters import KindCluster
from hack.kind.record import Record
from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError, step
from hack.release.overlays import DEVELOPED

PATIENCE = 1800.0  # seconds for one command; the longest pulls Ray's image
PROGRAMS = ("docker", "git", "kind", "kubectl")  # git is for kubectl, which reads KubeRay's kustomization by it
KUEUE_IMAGE = f"registry.k8s.io/kueue/kueue:{versions.KUEUE}"
KUBERAY_IMAGE = f"quay.io/kuberay/operator:{versions.KUBERAY}"
RAY_IMAGE = f"rayproject/ray:{versions.RAY}"
# With fewer, the requests of the control plane, Kueue and Rayspan leave the manager no room for a job.
ENOUGH_PROCESSORS = 4
LEAST_PROCESSORS, LEAST_MEMORY = 2, 7 * 1024**3
# An engine of this API or newer may keep images of several platforms, and saves all of them unless told.
_PLATFORM_API = (1, 48)
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INOTIFY = 512


def check() -> int:
    """The processors that the engine has; raises LabError with all that is missing."""
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        raise LabError(f"It needs {_listed(PROGRAMS)}; {_listed(missing)} cannot be found.")
    info = _info()
    if faults := list(find_faults(info)):
        raise LabError(" ".join(faults))
    if hint := inotify_hint(_INOTIFY):
        print(hint, file=sys.stderr)
    return int(info["NCPU"])


def find_faults(info: Mapping[str, Any]) -> Iterator[str]:
    """What keeps three clusters from running, in sentences; `info` is what `docker info` prints."""
    processors, memory = int(info.get("NCPU") or 0), int(info.get("MemTotal") or 0)
    if processors < LEAST_PROCESSORS:
        yield f"Docker has {processors} processor(s); three clusters need {LEAST_PROCESSORS} at least."
    if memory < LEAST_MEMORY:
        yield (
            f"Docker has {memory / 1024**3:.1f} GiB of memory; three clusters need {LEAST_MEMORY // 1024**3}. "
            "Docker Desktop gives more under Settings > Resources."
        )


def inotify_hint(file: Path) -> str:
    """What to do about a small limit of inotify; empty where it is large enough, or is not this machine's."""
    if not file.exists() or (limit := int(file.read_text())) >= _ENOUGH_INOTIFY:
        return ""
    return (
        f"hint: fs.inotify.max_user_instances is {limit}. If pods fail with `too many open files`, run "
        f"`sudo sysctl fs.inotify.max_user_instances={_ENOUGH_INOTIFY}`."
    )


def address(cluster: KindCluster) -> str:
    """The address of a cluster's node in Docker's network."""
    form = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
    return run(["docker", "inspect", "--format", form, cluster.node], timeout=PATIENCE).strip()


def build_controller() -> None:
    """Build the controller's image from this checkout."""
    run(["docker", "build", "--tag", DEVELOPED, REPO], timeout=PATIENCE)


def pull_images() -> None:
    """Pull what Docker does not have yet."""
    for image in (KUEUE_IMAGE, KUBERAY_IMAGE, RAY_IMAGE):
        if not _id(image):
            with step(f"docker: pull {image}"):
                source = published_name(image, str(_info().get("Architecture")))
                run(["docker", "pull", "--quiet", source], timeout=PATIENCE)
                if source != image:
                    run(["docker", "tag", source, image], timeout=PATIENCE)


def published_name(image: str, architecture: str) -> str:
    """The name under which an image is published for this architecture: Ray's for arm64 has a name of its own."""
    return f"{image}-aarch64" if image == RAY_IMAGE and architecture in ("aarch64", "arm64") else image


def load_images(images: Mapping[str, Sequence[KindCluster]], records: Mapping[str, Record], place: Path) -> set[str]:
    """Load each image into its clusters, where they have not the same one; returns those that replaced another one."""
    replaced = set()
    for image, clusters in images.items():
        number = _id(image)
        stale = [cluster for cluster in clusters if records[cluster.name].images.get(image) != number]
        if not stale:
            continue
        with step(f"kind: load {image} into {_listed([cluster.name for cluster in stale])}"):
            archive = _save(image, place)
            for cluster in stale:
                run(["kind", "load", "image-archive", archive, "--name", cluster.kind], timeout=PATIENCE)
                if image in records[cluster.name].images:
                    replaced.add(image)
                records[cluster.name].add_image(image, number)
            archive.unlink()
    return replaced


def _save(image: str, place: Path) -> Path:
    """An archive of the image. `kind load docker-image` would save it anew for each cluster, and fails with images of
    several platforms (kind issue 3795)."""
    archive = place / "image.tar"
    run(["docker", "save", *_platform(), "--output", archive, image], timeout=PATIENCE)
    return archive


def _platform() -> list[str]:
    told = json.loads(run(["docker", "version", "--format", "{{json .Server}}"], timeout=PATIENCE))
    return platform_option(str(told["ApiVersion"]), str(told["Arch"]))


def platform_option(api_version: str, architecture: str) -> list[str]:
    """The option of `docker save` for one platform; none for an engine that does not know it."""
    known = tuple(map(int, api_version.split("."))) >= _PLATFORM_API
    return [f"--platform=linux/{architecture}"] if known else []


def _id(image: str) -> str:
    """The id of an image that Docker has; empty if it has none of that name."""
    return run(["docker", "image", "inspect", "--format", "{{.Id}}", image], timeout=PATIENCE, check=False).strip()


def _info() -> dict[str, Any]:
    info: dict[str, Any] = json.loads(run(["docker", "info", "--format", "{{json .}}"], timeout=PATIENCE))
    return info


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
