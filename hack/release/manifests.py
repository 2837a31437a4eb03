"""Which files does a release have for `kubectl apply --server-side -f`? One for each role of a cluster, and one for each component.

They are whole: no file needs another one, or the checkout.
"""

import textwrap
from collections.abc import Mapping

import yaml

from hack.release import overlays
from hack.release.overlays import Part, Raw

PARTS = (overlays.MANAGER, overlays.WORKER, *overlays.COMPONENTS)


def files(version: str, image: str) -> Mapping[str, str]:
    """Name → content of each file."""
    return {file_of(part): _head(part, version) + dumped(overlays.objects(part, image)) for part in PARTS}


def file_of(part: Part) -> str:
    """How the file of a part is called: components are told from roles by their name."""
    return f"component-{part.name}.yaml" if part in overlays.COMPONENTS else f"{part.name}.yaml"


def dumped(objects: list[Raw]) -> str:
    """Objects as documents; long sentences stay on one line, as in the manifests, and nothing is an alias."""
    return "---\n".join(yaml.dump(each, Dumper=_Plain, sort_keys=False, width=10_000) for each in objects)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _head(part: Part, version: str) -> str:
    lines = [f"Rayspan {version}. {part.says}", f"  kubectl apply --server-side -f {file_of(part)}"]
    return "".join(
        f"{line}\n" for one in lines for line in textwrap.wrap(one, 118, initial_indent="# ", subsequent_indent="# ")
    )
