"""A memoised answer is reused for identical inputs only."""

from adapter.shell.kube.memo import IdentityMemo


def test_an_answer_is_reused_for_identical_inputs_only() -> None:
    same, asked, first, alike = IdentityMemo(), list[str](), [1], [1]

    def answer(of: str, *facts: object) -> str:
        return same.get_or_find(of, facts, lambda: asked.append(of) or f"{of}{len(asked)}")  # type: ignore[func-returns-value]

    assert [answer("a", first), answer("a", first)] == ["a1", "a1"]
    assert answer("a", alike) == "a2", "an object that is as good is another one"
    assert answer("a", alike, first) == "a3", "and so is one more"
    assert answer("b", alike, first) == "b4", "another question is not answered by it"
    assert answer("a", alike, first) == "a3"
