"""`python -m hack.release`: write a release's manifests and chart into a folder, or remake the checkout's chart."""

import argparse
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapter import __version__
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.release import chart, manifests, overlays, plugin

CHART = REPO / "charts" / chart.NAME


def write(
    folder: Path, version: str, repository: str, downloads: str = "", digest: str = "", relay_digest: str = ""
) -> None:
    """All files of a release: manifests in `folder` itself, and the chart below it.

    With the address that they are published under also the plugin's archives, for which pip asks an index. With the
    digests of the images, manifests and chart name exactly these images, wherever their tags point later.
    """
    tag = f"{version}@{digest}" if digest else ""
    relay_tag = f"{version}@{relay_digest}" if relay_digest else ""
    relay_image = f"{overlays.relay_repository(repository)}:{relay_tag or version}"
    _put(folder, manifests.files(version, f"{repository}:{tag or version}", relay_image))
    _put_chart(folder / chart.NAME, version, repository, tag, relay_tag)
    if downloads:
        plugin.write(folder, version, downloads)


def _put_chart(folder: Path, version: str, repository: str, tag: str = "", relay_tag: str = "") -> None:
    shutil.rmtree(folder, ignore_errors=True)  # a removed template would still be installed
    _put(folder, chart.files(version, repository, tag, relay_tag))


def _put(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def _digest(text: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no digest: give sha256: and 64 hexadecimal digits")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", help="where to; if it is left out, charts/rayspan of the checkout"
    )
    parser.add_argument(
        "--version", default=f"v{__version__}", help="the release, and the image's tag (default %(default)s)"
    )
    parser.add_argument(
        "--repository",
        default=overlays.DEVELOPED.partition(":")[0],
        help="the image without its tag; the relay's has -relay behind it (default %(default)s)",
    )
    parser.add_argument(
        "--downloads",
        default="",
        metavar="URL",
        help="where the files will be: write the plugin's archives for Krew, too",
    )
    parser.add_argument("--digest", type=_digest, help="of the pushed image, which the files then name")
    parser.add_argument("--relay-digest", type=_digest, help="the same of the relay's image")
    given = parser.parse_args(argv)
    try:
        if given.folder:
            write(
                given.folder,
                given.version,
                given.repository,
                given.downloads,
                given.digest or "",
                given.relay_digest or "",
            )
        else:
            _put_chart(CHART, given.version, given.repository)
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
