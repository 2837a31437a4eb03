"""The page shows the figures of the last runs, the worst row of each promise, and which benches did not run."""

import json
import math
import platform
from pathlib import Path

import pytest

from hack.bench import machine, page, record
from hack.bench.promises import BESIDE, DISPATCH, GROWTH, MULTIKUEUE, WALK, Row, rows
from hack.bench.record import Kept

RATIO, WRITES = DISPATCH["ratio"], WALK["ours_refused"]
TEXT = "# Before\n\n<!-- figures -->\nold\n<!-- end -->\n\nAfter.\n"
HERE, THERE = "2 cores (A), 8 GB of memory", "16 cores (B), 64 GB of memory"


def dispatched(pods: int, ratio: float, *, date: str = "2026-11-25", where: str = HERE) -> Kept:
    return Kept(Row("dispatch", f"{pods} pods", RATIO, ratio, ratio - 0.01, ratio + 0.01), date, where)


def line(*kept: Kept, bench: str = "dispatch", what: str = RATIO.what) -> list[str]:
    """The cells of a promise from its goal on."""
    found = page.written(TEXT, kept)
    (mine,) = (one for one in found.splitlines() if one.startswith(f"| `{bench}` | {what} |"))
    return [cell.strip() for cell in mine.strip("|").split("|")][2:]


def test_the_text_around_the_figures_stays() -> None:
    found = page.written(TEXT, [dispatched(100, 0.97)])
    assert found.startswith("# Before\n\n<!-- figures -->\n") and found.endswith("\n<!-- end -->\n\nAfter.\n")
    assert "old" not in found
    assert page.written(found, [dispatched(100, 0.97)]) == found


def test_a_bench_that_did_not_run_is_marked() -> None:
    assert line() == ["at least 0.95", "", "not run", "", "", ""]
    assert "Runs:" not in page.written(TEXT, [])


def test_the_row_that_kept_its_promise_worst_stands_for_all() -> None:
    kept = [dispatched(100, 0.97), dispatched(300, 0.94), dispatched(1000, 0.96)]
    assert line(*kept) == ["at least 0.95", "0.94 (0.93 to 0.95)", "**missed**", "300 pods", "0.94 to 0.97, of 3", "1"]
    most = [Kept(Row("walk", f"{n} workers", WRITES, n / 10), "2026-11-25", HERE) for n in (1, 4)]
    assert line(*most, bench="walk", what=WRITES.what)[1:4] == ["0.4", "met", "4 workers"]
    assert line(*kept, dispatched(5, math.nan))[2:4] == ["**not measured**", "5 pods"]


def test_each_row_of_a_comparison_is_shown() -> None:
    pace = MULTIKUEUE["pods_s"]
    kept = [
        Kept(Row("multikueue", about, pace, value), "2026-11-25", HERE) for about, value in (("a", 5.0), ("b", 9.0))
    ]
    found = [one for one in page.written(TEXT, kept).splitlines() if one.startswith(f"| `multikueue` | {pace.what} |")]
    assert [one.split(" | ")[2:6] for one in found] == [["none", "5", BESIDE, "a"], ["none", "9", BESIDE, "b"]]


def test_each_figure_links_its_run_and_the_newest_is_first() -> None:
    older, newer = dispatched(100, 0.97, date="2026-11-20", where=THERE), dispatched(300, 0.99)
    assert line(older, newer)[-1] == "2", "the worst is of the older run"
    found = page.written(TEXT, [older, newer])
    assert f"1. 2026-11-25, on {HERE}.\n2. 2026-11-20, on {THERE}.\n" in found


def test_rows_that_did_not_run_again_keep_their_figures(tmp_path: Path) -> None:
    file = tmp_path / "performance.json"
    record.keep([dispatched(100, 0.97).row, dispatched(300, 0.8).row], file)
    record.keep([Row("walk", "4 workers", WRITES, 0.1), dispatched(300, 0.99).row], file)
    found = {(one.row.bench, one.row.about): one.row.value for one in record.read(file)}
    assert found == {("dispatch", "100 pods"): 0.97, ("dispatch", "300 pods"): 0.99, ("walk", "4 workers"): 0.1}
    assert [one.row.bench for one in record.read(file)] == ["dispatch", "dispatch", "walk"], "in the order of benches"


def test_stored_figures_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "performance.json"
    kept = record.keep([Row("reserve", "over 2 clusters", GROWTH, math.nan), dispatched(1, 0.123456789).row], file)
    assert repr(record.read(file)) == repr(kept), "nan is unlike itself"
    assert "NaN" not in file.read_text()


def test_figures_without_a_promise_are_deleted(tmp_path: Path) -> None:
    file = tmp_path / "performance.json"
    record.keep([dispatched(100, 0.97).row], file)
    (said,) = json.loads(file.read_text())
    file.write_text(json.dumps([{**said, "promise": "that it sings"}, {**said, "bench": "song"}, said]))
    assert [one.row.promise for one in record.read(file)] == [RATIO]
    assert record.read(tmp_path / "none.json") == []


def test_figures_with_equal_promises_stay_separate() -> None:
    found = rows(
        "fleet",
        "10k",
        {"start_ms": 1.0, "end_ms": 2.0, "mb": 3.0},
        {"start_ms": WRITES, "end_ms": WRITES, "mb": GROWTH},
    )
    assert [row.about for row in found] == ["10k, start_ms", "10k, end_ms", "10k"]


@pytest.mark.parametrize(
    ("cpuinfo", "want"),
    [
        pytest.param(
            "processor\t: 0\nmodel name\t: A  CPU @ 2 GHz\n\nmodel name\t: A  CPU @ 2 GHz\n",
            "A CPU @ 2 GHz",
            id="a processor with a name",
        ),
        pytest.param("processor\t: 0\n", platform.machine(), id="a processor without a name"),
    ],
)
def test_the_machine_is_described(cpuinfo: str, want: str) -> None:
    assert machine.cpu_model(cpuinfo) == want
    assert machine.gigabytes("MemTotal:       8130664 kB\nMemFree: 1 kB\n") == 8
    assert " cores (" in machine.described()
