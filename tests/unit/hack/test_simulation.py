"""Trials of the simulation: the same each time, and broken promises are seen. Each is a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from hack.lab.base.paths import REPO
from hack.mutants import patch as patches
from hack.simulation import mutants

_CUT = "Event(1, 60, 'cut', 'east', 400, 0.1)"
_JOB = "Event(0, 5, 'job', '', 470, 0.7)"
# Runs events in two clusters of four workers each, after a change of the product.
_PLAY = """
import sys
from hack.simulation import virtualtime
virtualtime.install()
from hack.simulation import report, trial
from hack.simulation.plan import Event
from hack.simulation.world import Shape
{broken}
shape = Shape({{"east": 4, "west": 4}}, "AllOrNothing", "FillInOrder", "")
print(report.as_json(trial.play(1, shape, [{events}], 720.0)))
"""


def outcome(words: Sequence[str], hash_seed: int = 0) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONHASHSEED": str(hash_seed)}
    ended = subprocess.run([sys.executable, *words], cwd=REPO, env=environment, capture_output=True, text=True)
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def played(events: Sequence[str], broken: str = "") -> list[str]:
    """The promises that are broken."""
    program = _PLAY.format(broken=broken, events=", ".join(events))
    return sorted({rule for rule, _ in outcome(["-c", program])["violations"]})


def test_a_seed_gives_the_same_trial_whatever_the_hash_seed() -> None:
    words = ["-m", "hack.simulation", "--seed", "8", "--hours", "0.4", "--json"]
    first, second = outcome(words, 1), outcome(words, 2)
    assert {**first, "cpu": 0} == {**second, "cpu": 0}
    assert not first["violations"] and first["events"]
    assert outcome([*words, "--only", "0"])["digest"] != first["digest"]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([_JOB, _CUT], id="a cluster is cut off"),
        pytest.param([_JOB, "Event(1, 4, 'cut-when-ready', 'east', 450, 0.1)"], id="when a worker becomes ready"),
        pytest.param(
            [_JOB, _CUT, "Event(2, 370, 'crash-both', '', 10, 0.5)", "Event(3, 371, 'busy-heads', '', 45, 0.5)"],
            id="both replicas crash, and heads are busy when they return",
        ),
    ],
)
def test_no_worker_is_given_up_that_ray_hears_from(events: list[str]) -> None:
    assert played(events) == []


@pytest.mark.parametrize(
    ("broken", "events", "rule"),
    [
        pytest.param(
            "from adapter.worker import cluster_loss\n"
            "cluster_loss.ray_node_address = lambda pod: 'nowhere'",
            [_JOB, _CUT], "given up", id="Ray's word is not heard",
        ),
        pytest.param(
            "from adapter.worker import dispatch\n"
            "dispatch.RULES = [rule for rule in dispatch.RULES if rule.name != 'cluster unreachable']",
            [_JOB, "Event(1, 60, 'cut', 'east', 200, 0.1)"], "not gone", id="an unreachable cluster counts as empty",
        ),
        pytest.param(
            "from adapter.gang import cleanup\n"
            "cleanup.delete_shares = lambda gang, leftovers: []",
            ["Event(0, 5, 'job', '', 300, 0.7)"], "share without reason", id="shares stay",
        ),
        pytest.param(
            "from adapter.shell.observe.transient_state import TransientState\n"
            "TransientState.keep_only = lambda *_: None",
            [_JOB], "memory", id="notes stay",
        ),
    ],
)  # fmt: skip
def test_a_broken_promise_is_seen(broken: str, events: list[str], rule: str) -> None:
    assert rule in played(events, broken)


# Runs a function of the campaign on virtual time, after a change of the product; prints what it prints.
_FORKED = """
from hack.simulation import campaign, forked_trial
from hack.simulation.forked_trial import Request
forked_trial.prepare()
{broken}
{call}
"""
_NO_SHARE = (
    "from adapter.shell.write.gang_writer import GangWriter\n"
    "async def reserve_share(self, action):\n"
    "    raise ValueError('the share is not created')\n"
    "GangWriter.reserve_share = reserve_share"
)


def forked(call: str, broken: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONHASHSEED": "0"}
    words = [sys.executable, "-c", _FORKED.format(broken=broken, call=call)]
    ended = subprocess.run(words, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    return ended.stdout


def test_a_plan_shrinks_to_the_events_that_break_the_promise() -> None:
    """Seed 1 has a cut and four jobs. A share that cannot be created needs one job."""
    last = forked("campaign.shrink(1, 0.4, 10)", _NO_SHARE).splitlines()[-1]
    assert last.startswith("seed 1 breaks 'exception' with 1 of 5 events: "), last
    assert " --only 4 " in last


def test_trials_are_the_same_whatever_ran_before_and_beside_them() -> None:
    call = (
        "requests = [Request(8, 0.4, [0])] * 2\n"
        "digests = [result.digest for result in forked_trial.run_each(requests, 2)]\n"
        "print(len(digests), len(set(digests)), digests[0])"
    )
    alone = outcome(["-m", "hack.simulation", "--seed", "8", "--hours", "0.4", "--json", "--only", "0"])
    assert forked(call).split() == ["2", "1", alone["digest"]]


def test_a_trial_that_dies_is_told() -> None:
    call = "print(forked_trial.run_one(Request(8, 0.4)).fault)"
    assert "SystemExit: 3" in forked(
        call, "import sys\nfrom hack.simulation import trial\ntrial.run = lambda *_, **__: sys.exit(3)"
    )


def test_each_fault_that_no_trial_sees_has_a_patch() -> None:
    assert set(mutants.BLIND) < {patch.name for patch in patches.every()}


@pytest.mark.parametrize(
    ("printed", "word"),
    [
        ("null\n", mutants.MISSED),
        ('{"seed": 3, "hours": 0.1, "fault": "", "text": "no leader"}\n', mutants.FOUND),
        ('{"seed": 3, "hours": 0.0, "fault": "it ended with 9", "text": "it ended with 9"}\n', mutants.UNSURE),
        ("", mutants.UNSURE),
    ],
)
def test_the_verdict_of_a_fault_that_was_put_back(printed: str, word: str) -> None:
    patch = patches.every()[0]
    assert mutants.judge(patch, 4, subprocess.CompletedProcess([], 0, printed, "")).word == word
