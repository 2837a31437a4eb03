"""Runs a preflight as a process, as an administrator does, and reads its document."""

import json
import subprocess
import sys
from typing import Any

from hack.lab.base.paths import REPO
from hack.lab.images import images
from hack.testbed.clusters import Cluster
from hack.testbed.stage import Stage


def command(stage: Stage, *words: str) -> list[str]:
    return _command(stage.manager, stage.name, *words)


def _command(manager: Cluster, namespace: str, *words: str) -> list[str]:
    """The lab's worker clusters have the image of Ray, and no registry; of two images the last one counts."""
    login = ("--kubeconfig", str(manager.kubeconfig), "--image", images.reference("ray"))
    return [sys.executable, "-m", "adapter", "preflight", "-n", namespace, *login, *words]


def preflight(stage: Stage, *words: str, want: int) -> Any:
    """Its document, as programs read it; it must end with the exit code `want`."""
    return preflight_in(stage.manager, stage.name, *words, want=want)


def preflight_in(manager: Cluster, namespace: str, *words: str, want: int) -> Any:
    """The same in a namespace."""
    asked = _command(manager, namespace, "-o", "json", *words)
    done = subprocess.run(asked, cwd=REPO, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout, done
    document = json.loads(done.stdout)
    assert done.returncode == want, failures(document)
    return document


def failures(document: Any) -> list[tuple[str, str, str]]:
    """Clusters, check and message of each failure."""
    return findings(document, "failure")


def findings(document: Any, outcome: str) -> list[tuple[str, str, str]]:
    """The same of each finding with this outcome."""
    found = (finding for finding in document["findings"] if finding["outcome"] == outcome)
    return [(" ".join(finding["clusters"]), finding["check"], finding["message"]) for finding in found]
