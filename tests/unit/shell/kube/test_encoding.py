"""Request bodies keep any text, and an API server may read them as JSON or as YAML."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.shell.kube import encoding

LONE = st.characters(categories=["Cs"])


@given(st.dictionaries(st.text(max_size=64), st.text() | st.integers() | st.lists(st.text())))
def test_a_body_is_equal_as_json_and_as_yaml(body: dict[str, object]) -> None:
    text = encoding.to_json(body)
    assert json.loads(text) == body == yaml.safe_load(text)


@pytest.mark.parametrize(
    "said", ["ß…é\u200d\u202e\u0301\U0001f996", "\x85\u2028\u2029\x7f\ufeff\uffff", '\\ud83e "\\U0001f996']
)
def test_a_body_has_no_escape_unknown_to_yaml(said: str) -> None:
    text = encoding.to_json({"message": said})
    assert yaml.safe_load(text) == {"message": said}
    assert "\\ud" not in text.replace("\\\\", "")


@given(st.text(LONE, min_size=1))
def test_a_lone_surrogate_is_replaced(said: str) -> None:
    text = encoding.to_json([{"message": said}])
    text.encode()
    assert json.loads(text) == [{"message": "\ufffd" * len(said)}]
