"""Trials of the simulation: the same each time, and broken promises are seen. Each is a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hack.lab.base.paths import REPO
from hack.mutants import patch as patches
from hack.simulation import mutants

_CUT = "Event(1, 60, 'cut', 'east', 400, 0.1)"
_JOB = "Event(0, 5, 'job', '', 470, 0.7)"
# East's etcd comes back with the pods and the share of a job that ended since the backup.
_RESTORED = ["Event(0, 5, 'job', '', 120, 0.7)", "Event(1, 60, 'restore', 'east', 100, 0.5)"]
_CRASHES = [_JOB, "Event(1, 200, 'crash-loop', 'east', 240, 0.1)"]
# Imports the product on virtual time once. For each line, JSON of a program, it runs it in a fork and writes what it
# returns: a fork costs milliseconds, the import seconds.
_SERVER = """
import json, os, sys
from hack.simulation import forked_trial
forked_trial.prepare()
from hack.simulation import campaign, report, trial
from hack.simulation.forked_trial import Request, run_each, run_one
from hack.simulation.plan import Event
from hack.simulation.scenarios import SCENARIOS
from hack.simulation.world import Shape
shape = Shape({"east": 4, "west": 4}, "AllOrNothing", "FillInOrder", "", 60.0)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            exec(json.loads(line))
        except BaseException as error:
            answer = repr(error)
        os.write(1, b"\\n" + json.dumps({"answer": answer}).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Runs a program that sets `answer`, in a process of its own; returns the answer, after `broken` has been run."""
    words = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(
        words, cwd=REPO, env=_environment(0), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout

        def run(program: str, broken: str = "") -> Any:
            assert server.stdin and server.stdout
            server.stdin.write(json.dumps(f"{broken}\n{program}") + "\n")
            server.stdin.flush()
            return next(json.loads(line)["answer"] for line in server.stdout if line.startswith('{"answer"'))

        yield run


def _environment(hash_seed: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPO), "PYTHONHASHSEED": str(hash_seed)}


def played(ask: Ask, events: Sequence[str], broken: str = "", until: str = "") -> list[str]:
    """The promises that are broken by events in two clusters of four workers each."""
    call = f"trial.play(1, shape, [{', '.join(events)}], 720.0, until={until!r})"
    found = ask(f"answer = [one.rule for one in {call}.violations]", broken)
    assert isinstance(found, list), found
    return sorted(set(found))


def run_command(*words: str, hash_seed: int = 0) -> Any:
    argv = [sys.executable, "-m", "hack.simulation", *words, "--json"]
    ended = subprocess.run(argv, cwd=REPO, env=_environment(hash_seed), capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


_SHORT = ("--seed", "8", "--hours", "0.4", "--seconds", "300")


def test_a_seed_gives_the_same_trial_whatever_the_hash_seed_and_the_process(ask: Ask) -> None:
    """And whatever ran before it and beside it."""
    alone = run_command(*_SHORT, hash_seed=1)
    digests = ask("answer = [one.digest for one in run_each([Request(8, 0.4, longest=300.0)] * 2, 2)]")
    assert digests == [alone["digest"]] * 2
    assert not alone["violations"] and alone["events"]
    assert ask("answer = run_one(Request(8, 0.4, [], longest=300.0)).digest") != alone["digest"]


def test_a_campaign_ends_by_real_time(ask: Ask) -> None:
    """Virtual time stands still in its process."""
    wait = "import select; began = campaign.real_time(); select.select([], [], [], 0.01)"
    program = f"{wait}; answer = campaign.real_time() > began"
    assert ask(program) is True


def test_a_campaign_finds_what_a_trial_finds() -> None:
    """It has virtual time, too: the first one ran on real clocks, and each restart broke a promise."""
    assert run_command("--find", "1", *_SHORT) is None


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([_JOB, _CUT], id="a cluster is cut off"),
        pytest.param([_JOB, "Event(1, 4, 'cut-when-ready', 'east', 450, 0.1)"], id="when a worker becomes ready"),
        pytest.param(
            [_JOB, _CUT, "Event(2, 370, 'crash-both', '', 10, 0.5)", "Event(3, 371, 'busy-heads', '', 45, 0.5)"],
            id="both replicas crash, and heads are busy when they return",
        ),
        pytest.param(_RESTORED, id="a worker cluster is restored from a backup"),
        pytest.param(_CRASHES, id="a worker is in a crash loop, and Kueue counts to a minute"),
    ],
)
def test_no_worker_is_lost_that_works(ask: Ask, events: list[str]) -> None:
    assert played(ask, events) == []


@pytest.mark.parametrize(
    ("broken", "events", "rule"),
    [
        pytest.param(
            "from adapter.worker import cluster_loss\n"
            "cluster_loss.ray_node_address = lambda pod, network: 'nowhere'",
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
        pytest.param(
            "from adapter.gang import readiness_timeout\n"
            "readiness_timeout.replace_unready_workers = lambda *_: []",
            _CRASHES, "stopped by the clock", id="unready workers are not replaced",
        ),
        pytest.param(
            "from adapter.rewrite import rewriter\n"
            "usual = rewriter._group_annotations\n"
            "rewriter._group_annotations = lambda *_: {**usual(*_), rewriter.names.GROUP_TOTAL_ANNOTATION: '4'}",
            [_JOB, "Event(1, 200, 'drain', 'east', 240, 0.1)"], "stopped by the clock", id="empty places count",
        ),
    ],
)  # fmt: skip
def test_a_broken_promise_is_seen(ask: Ask, broken: str, events: list[str], rule: str) -> None:
    assert rule in played(ask, events, broken, until=rule)


_SCENARIO = (
    "one = SCENARIOS[{!r}]\n"
    "play = trial.play(one.seed, one.shape, one.events, one.seconds, until=forked_trial.ANY)\n"
    "answer = [[found.rule for found in play.violations], one.rule]"
)


@pytest.mark.parametrize("name", sorted(mutants.scenario_names()))
def test_a_scenario_breaks_no_promise(ask: Ask, name: str) -> None:
    broken, _ = ask(_SCENARIO.format(name))
    assert broken == []


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        pytest.param(
            "copy-made-anew",
            "from adapter.worker import dispatch\n"
            "dispatch.is_dispatched = lambda pod: False",
            id="a remote pod is created a second time",
        ),
        pytest.param(
            "copy-asked-for-again-elsewhere",
            "from dataclasses import replace\n"
            "from adapter.worker import template_slots\n"
            "usual = template_slots.owns_slot\n"
            "template_slots.owns_slot = lambda *_: usual(*_[:2], replace(_[2], create_unanswered=False))",
            id="a remote pod without an answer is created elsewhere",
        ),
        pytest.param(
            "promise-forgotten",
            "from adapter.planning import capacity\n"
            "capacity.is_counted = lambda *_: True",
            id="two gangs get the same quota",
        ),
        pytest.param(
            "gang-starts-with-a-part",
            "from adapter.gang import reserve\n"
            "reserve.blocked_shares = lambda *_: {}",
            id="a gang starts with a part",
        ),
        pytest.param(
            "ready-without-a-last-look",
            "from adapter.shell.write.gang_writer import GangWriter\n"
            "async def verify(*_): pass\n"
            "GangWriter._verify_share = verify",
            id="a gang starts on what was there",
        ),
        pytest.param(
            "slot-doubled",
            "from adapter.shell.observe.slots import PendingAssignments\n"
            "PendingAssignments.slots = lambda *_, **__: frozenset()",
            id="two workers get one slot",
        ),
        pytest.param(
            "decides-by-its-own-clock",
            "from datetime import UTC, datetime\n"
            "from adapter.shell.kube.server_clock import ServerClock\n"
            "ServerClock.now = lambda self: datetime.now(UTC)",
            id="a replica decides by its own clock",
        ),
        pytest.param(
            "replaced-in-an-excluded-cluster",
            "from adapter.worker import dispatch\n"
            "dispatch._has_slot_elsewhere = lambda state: False",
            id="a worker is created where it could not start",
        ),
    ],
)  # fmt: skip
def test_a_scenario_shows_its_fault(ask: Ask, name: str, broken: str) -> None:
    found, rule = ask(_SCENARIO.format(name), broken)
    assert found == [rule]


def test_a_replica_that_does_not_lead_must_not_write(ask: Ask) -> None:
    broken = (
        "from adapter.shell.controller.engine import Engine\n"
        "from adapter.shell.controller.lease import LeaderElector\n"
        "import asyncio\n"
        "async def wait(self, tasks, parts):\n"
        "    self._leading = True\n"
        "    parts.transient.start_leading(self.manager.clock.now(), ())\n"
        "LeaderElector.may_write = lambda self: True\n"
        "Engine._wait_to_lead = wait"
    )
    assert "two leaders" in played(ask, [_JOB], broken, until="two leaders")


_NO_SHARE = (
    "from adapter.shell.write.gang_writer import GangWriter\n"
    "async def reserve_share(self, action):\n"
    "    raise ValueError('the share is not created')\n"
    "GangWriter.reserve_share = reserve_share"
)


def test_a_plan_shrinks_to_the_events_that_break_the_promise(ask: Ask) -> None:
    """Seed 1 has three faults and four jobs. A share that cannot be created needs one job."""
    program = (
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()) as printed: campaign.shrink(1, 0.4, 10)\n"
        "answer = printed.getvalue()"
    )
    last = ask(program, _NO_SHARE).splitlines()[-1]
    assert last.startswith("seed 1 breaks 'exception' with 1 of 7 events: "), last
    assert " --only 5 " in last


def test_a_trial_that_dies_is_told(ask: Ask) -> None:
    fault = ask("answer = run_one(Request(8, 0.4)).fault", "trial.run = lambda *_, **__: sys.exit(3)")
    assert "SystemExit: 3" in fault


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
