"""The annotation that names the clusters that a job's workers leave: any text is read, and what is ignored is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.move_from import MAX_LENGTH, MoveFrom, ignored_part, read_move_from
from adapter.objects.unstructured import Raw

FLEET = ("east", "west")
IS_IGNORED = "and is ignored in that; correct the name, or remove it"


def annotated(text: object) -> Raw:
    return {"metadata": {"annotations": {names.MOVE_FROM_ANNOTATION: text}}}


@pytest.mark.parametrize(
    ("text", "clusters", "ignored"),
    [
        pytest.param("", (), "", id="nothing"),
        pytest.param("east", ("east",), "", id="one cluster"),
        pytest.param("west,east", ("west", "east"), "", id="two clusters"),
        pytest.param(" west , east,,west", ("west", "east"), "", id="blanks and repetitions"),
        pytest.param(" , ", (), "names no WorkerCluster; name one, or remove the annotation", id="no name"),
        pytest.param(
            "east,north",
            ("east", "north"),
            f"names a WorkerCluster that does not exist (north), {IS_IGNORED}",
            id="an unknown cluster beside a known one",
        ),
        pytest.param(
            "a,b,c,d,e,f,g",
            ("a", "b", "c", "d", "e", "f", "g"),
            f"names WorkerClusters that do not exist (a, b, c, d, e and 2 more), {IS_IGNORED}",
            id="many unknown clusters",
        ),
        pytest.param(
            "\x1b[2J",
            ("\x1b[2J",),
            f"names a WorkerCluster that does not exist (\N{REPLACEMENT CHARACTER}[2J), {IS_IGNORED}",
            id="garbage",
        ),
        pytest.param("east," * (MAX_LENGTH // 5), ("east",), "", id="as long as may be"),
        pytest.param(
            "east," * (MAX_LENGTH // 5) + "n" * 5,
            (),
            "has 4100 characters, more than 4096, so it is ignored; name fewer clusters",
            id="too long",
        ),
        pytest.param({"east": True}, (), "", id="not a text"),
    ],
)
def test_what_the_annotation_names(text: object, clusters: tuple[str, ...], ignored: str) -> None:
    move_from = read_move_from(annotated(text))
    assert move_from.clusters == clusters
    prefix = f"annotation {names.MOVE_FROM_ANNOTATION} " if ignored else ""
    assert ignored_part(move_from, FLEET) == prefix + ignored


@given(st.text(alphabet=st.sampled_from("ab, \x00\n"), max_size=MAX_LENGTH))
def test_any_text_is_read_and_told_in_a_bounded_line(text: str) -> None:
    move_from = read_move_from(annotated(text))
    line = ignored_part(move_from, FLEET)
    assert line.isprintable() and len(line) < 600
    assert move_from == MoveFrom(move_from.clusters, move_from.fault) and "" not in move_from.clusters
