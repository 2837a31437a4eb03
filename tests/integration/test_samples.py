"""Does the manager's API server take the samples of docs/policies.md as they are, Kueue's webhooks included?"""

from pathlib import Path

import pytest

from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Clusters

pytestmark = pytest.mark.long

_SAMPLES = sorted((REPO / "manifests" / "samples" / "policies").glob("*.yaml"))


@pytest.mark.parametrize("file", _SAMPLES, ids=lambda file: str(file.stem))
def test_sample_is_accepted(fleet: Clusters, file: Path) -> None:
    """A dry run: the server validates every field, and keeps nothing."""
    how = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    said = fleet.manager.kubectl("apply", *how, "-f", file)
    assert said.count("(server dry run)") == file.read_text().count("\nkind: ")


def test_a_wrong_one_is_not(fleet: Clusters) -> None:
    """The dry run would have told: a strategy that contradicts its gang is refused in a sentence."""
    text = (REPO / "manifests" / "samples" / "policies" / "spread.yaml").read_text() + "  gang: SameCluster\n"
    with pytest.raises(LabError, match="contradict each other"):
        fleet.manager.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
