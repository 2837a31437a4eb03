"""Tests that an elastic job over islands grows into both clusters by Ray's autoscaler, and shrinks."""

import pytest

from hack.testbed import rayspec
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import ELASTIC, Job, removed

pytestmark = pytest.mark.long  # in a network with routes: e2e/test_elastic.py


def test_an_autoscaled_job_grows_over_islands(relayed: Clusters) -> None:
    with removed(Job(relayed, "relayed-elastic", 1, sample=ELASTIC)) as job:
        job.submit(change=rayspec.beside_sidecars, words="--more 1")
        assert job.said("STARTED") == {"clusters": ["east"]}
        first = {pod["metadata"]["uid"] for pod in job.pods()}
        grown = job.said("GREW")
        assert (grown["same"], grown["clusters"]) == (True, ["east", "west"])
        assert first <= {pod["metadata"]["uid"] for pod in job.pods()}, "the first worker goes on"
        shrunk = job.said("SHRANK")
        assert (shrunk["same"], shrunk["workers"]) == (True, 1)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
