"""Do shares of the long tests leave none out, and none of them much more than the others?"""

from hypothesis import given
from hypothesis import strategies as st

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


def test_another_seed_runs_others() -> None:
    files = [f"test_{number}.py" for number in range(20)]
    assert len({left_out(files, 2, seed) for seed in range(10)}) == 10
