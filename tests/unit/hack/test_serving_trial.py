"""The trial of a RayService under load counts all requests and reports missed promises."""

import asyncio
import json
import math
import sys
from collections import Counter

import pytest
from aiohttp import web

from hack.trials.serving import load, report
from hack.trials.serving.load import Second
from hack.trials.serving.report import Clock, Stage
from tests.unit import apiserver

STEADY = [Second(float(at), 10, zones=Counter(east=10)) for at in range(100)]
ODD = Second(50.0, 10, Counter(TimeoutError=2), Counter(east=8))
SECONDS = [ODD if one.at == ODD.at else one for one in STEADY]


@pytest.mark.parametrize(
    ("stage", "seconds", "want"),
    [
        pytest.param(Stage("a", 0, 50, 1.0), SECONDS, [], id="a stage before the fault"),
        pytest.param(Stage("a", 50, 60), SECONDS, [], id="a stage without a promise"),
        pytest.param(Stage("a", 50, 60, 0.98), SECONDS, [], id="a stage that keeps its promise"),
        pytest.param(
            Stage("a", 50, 60, 0.99), SECONDS,
            [
                "a: 98.00% of 100 requests were answered, and 99.00% must be; instead of an answer came "
                "{'TimeoutError': 2}.",
            ],
            id="a stage that misses its promise",
        ),
        pytest.param(
            Stage("a", 200, 210, 0.5), SECONDS,
            ["a: nan% of 0 requests were answered, and 50.00% must be; instead of an answer came {}."],
            id="a stage without requests",
        ),
    ],
)  # fmt: skip
def test_missed_promises_are_reported(stage: Stage, seconds: list[Second], want: list[str]) -> None:
    assert report.missed([stage], seconds, []) == want
    last = report.table([stage], seconds, []).splitlines()[1].split()[-1]
    assert last == ("-" if stage.least is None else "no" if want else "yes")


def test_slow_steps_are_reported() -> None:
    clocks = [Clock("it", 24.0, 25.0), Clock("another", 26.0, 25.0)]
    assert report.missed([], [], clocks) == ["another took 26.0 s, and may take 25 s."]
    assert [row.split()[-1] for row in report.table([], [], clocks).splitlines()[-2:]] == ["yes", "no"]


def test_no_requests_have_no_share() -> None:
    assert math.isnan(report.share([])) and report.share([ODD]) == 0.8


def test_lines_for_programs_have_no_spaces_in_values() -> None:
    told = report.lines([Stage("cut: afterwards", 0, 60)], SECONDS, [Clock("a b", 1.0, 2.0)])
    assert told == [
        "BENCH serving stage=cut:-afterwards seconds=60 requests=600 failed=2",
        "BENCH serving-time what=a-b s=1",
    ]


def test_each_second_with_a_failure_is_listed() -> None:
    assert report.troubles([Stage("drain", 48.5, 60)], SECONDS) == [
        "drain +2 s: 2 of 10 failed: {'TimeoutError': 2}; answered by {'east': 8} of {}"
    ]


async def test_the_client_counts_answers_errors_and_timeouts() -> None:
    """Runs the pod's program, for the second in which it starts."""
    count, hangs = 0, asyncio.Event()

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count % 5 == 0:
            await hangs.wait()
        return web.json_response({"zone": "east", "release": "one"}, status=503 if count % 5 == 1 else 200)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    words = (sys.executable, "-u", "-c", load._PROGRAM, url, "10", "10")
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(apiserver.PATIENCE):
            assert process.stdout
            (found,) = load.read((await process.stdout.readline()).decode())
    finally:
        process.kill()
        await process.wait()
        hangs.set()
        await runner.cleanup()
    assert found.asked == 10 and found.zones == Counter(east=6) and found.releases == Counter(one=6)
    assert found.failed == Counter({"503": 2, "TimeoutError while waiting for an answer": 2})


def test_other_lines_of_the_pod_are_ignored() -> None:
    line = json.dumps({"at": 1, "asked": 2, "failed": {}, "zones": {"east": 1, "west": 1}, "releases": {"one": 2}})
    (found,) = load.read(f"a warning\n{line}\n")
    assert load.zones([found]) == {"east", "west"} and load.releases([found]) == {"one"}
