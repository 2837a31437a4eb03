"""A record of what a cluster was given, so that a second run does not repeat it.

It is a file on the cluster's node: it goes with the cluster, and a cluster without one was not created to its end.
"""

import json
from dataclasses import dataclass, field

from hack.kind.programs import run_docker

_FILE = "/kind/rayspan.json"


@dataclass
class Record:
    """What the node of a container has: images by name with Docker's id, and addons by name with their source."""

    node: str
    images: dict[str, str] = field(default_factory=dict)
    addons: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, node: str) -> "Record | None":
        """The record of a node; None if its cluster was not created to its end."""
        text = run_docker("exec", node, "cat", _FILE, check=False)
        return cls(node, **json.loads(text)) if text.strip() else None

    def add_image(self, image: str, image_id: str) -> None:
        self.images[image] = image_id
        self.write()

    def add_addon(self, addon: str, source: str) -> None:
        self.addons[addon] = source
        self.write()

    def write(self) -> None:
        text = json.dumps({"images": self.images, "addons": self.addons})
        script = f"cat >{_FILE}.new && mv {_FILE}.new {_FILE}"
        run_docker("exec", "--interactive", self.node, "sh", "-c", script, input=text)
