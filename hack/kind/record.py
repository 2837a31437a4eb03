"""A record of what a cluster was given, so that a second run does not repeat it. It goes with the cluster."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Record:
    """The images that its nodes have, by name with Docker's id, and the addons that were installed."""

    file: Path
    images: dict[str, str] = field(default_factory=dict)
    addons: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> "Record":
        return cls(file, **json.loads(file.read_text())) if file.exists() else cls(file)

    def add_image(self, image: str, number: str) -> None:
        self.images[image] = number
        self._write()

    def add_addon(self, addon: str) -> None:
        self.addons.append(addon)
        self._write()

    def _write(self) -> None:
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps({"images": self.images, "addons": self.addons}))
        temporary.rename(self.file)
