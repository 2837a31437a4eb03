"""Shares of the long tests cover all files, and their sizes are similar."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from hack.lab.base.paths import REPO
from hack.testbed.drawnshare import left_out

FILES = st.frozensets(st.text(min_size=1), max_size=20)


@given(FILES, st.integers(1, 4), st.integers(0, 1_000_000))
def test_shares_that_follow_each_other_run_each_file_once(files: frozenset[str], share: int, seed: int) -> None:
    first = seed - seed % share
    runs = [files - left_out(files, share, first + number) for number in range(share)]
    assert sorted(name for run in runs for name in run) == sorted(files)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


@given(FILES, st.integers(0, 1_000_000))
def test_the_same_seed_runs_the_same(files: frozenset[str], seed: int) -> None:
    assert left_out(files, 2, seed) == left_out(reversed(sorted(files)), 2, seed)


def test_another_seed_runs_other_files() -> None:
    files = [f"test_{number}.py" for number in range(20)]
    assert len({left_out(files, 2, seed) for seed in range(10)}) == 10


def test_parallel_processes_draw_the_same_share() -> None:
    """Four of eight long files run in whichever process. Two independent draws would differ 69 times in 70."""
    quick = ("seed", "lab_kernel", "lab_choice", "lab_versions", "cuts", "rights", "lab_archive", "kind")
    files = [f"tests/unit/hack/test_{name}.py" for name in quick]
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--long-share", "2", *files]
    ended = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert sum(f"PASSED {file}::" in ended.stdout for file in files) == len(files) // 2
