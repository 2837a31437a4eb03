"""The record of earlier attempts is read as it is written, and any other text counts as none."""

import json

import pytest

from adapter.objects.past_exclusions import (
    MAX_CLUSTERS,
    NO_PAST_EXCLUSIONS,
    PastExclusions,
    format_past_exclusions,
    parse_past_exclusions,
)
from tests.unit.builders import at, stamp


def test_it_is_read_as_it_is_written() -> None:
    past = PastExclusions({"west": at(60), "east": at(9)}, 3)
    assert parse_past_exclusions(format_past_exclusions(past)) == past


def test_it_is_bounded() -> None:
    past = PastExclusions({f"{number:063}": at(number) for number in range(MAX_CLUSTERS + 5)}, 500)
    again = parse_past_exclusions(format_past_exclusions(past))
    assert (len(again.until), again.start_timeouts) == (MAX_CLUSTERS, 99)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "west",
        "[]",
        "[" * 9000,
        '{"excluded":[],"unstarted":0}',
        '{"excluded":{"west":5},"unstarted":0}',
        '{"excluded":{"west":"soon"},"unstarted":0}',
        json.dumps({"excluded": {"": stamp(0)}, "unstarted": 0}),
        json.dumps({"excluded": {"w" * 64: stamp(0)}, "unstarted": 0}),
        json.dumps({"excluded": {"west": stamp(0)}, "unstarted": -1}),
        json.dumps({"excluded": {"west": stamp(0)}, "unstarted": True}),
        json.dumps({"excluded": {"west": stamp(0)}}),
        json.dumps({"excluded": {str(n): stamp(0) for n in range(MAX_CLUSTERS + 1)}, "unstarted": 0}),
    ],
)
def test_a_text_that_we_cannot_have_written_counts_as_none(text: str) -> None:
    assert parse_past_exclusions(text) == NO_PAST_EXCLUSIONS
