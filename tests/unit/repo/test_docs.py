"""References in docs and comments exist: files, headings, upstream rules and packages."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapter import names
from adapter.gang import lifecycle
from adapter.rules import Rule
from adapter.worker import dispatch
from hack.lab.base.paths import REPO
from hack.lab.base.versions import KUBERAY, KUBERNETES, KUEUE, RAY, VOLCANO

DOCS = (*REPO.glob("*.md"), *REPO.glob("docs/*.md"))
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ROOMS = ("adapter", "hack", "tests", "e2e", "manifests", "kustomize", "docs")
_READ = [
    *REPO.glob("*.py"),
    *REPO.glob("*.md"),
    *(path for room in _ROOMS for kind in ("py", "yaml", "md") for path in (REPO / room).rglob(f"*.{kind}")),
]
_NOTE = re.compile(r"(?<![\w:/.-])(?:\.{1,2}/)*[\w-]+(?:/[\w-]+)*\.md\b")  # not the end of an address or of `ray:PATH`
_UPSTREAM = re.compile(r'docs/upstream\.md,\s+(?:# )?"([^"]+)"')
_MAP = REPO / "docs/architecture.md"
_ROOM_TABLE = re.compile(r"(<!-- rooms: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
_RULE_LIST = re.compile(r"(<!-- rules: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
_RULES: Mapping[str, Iterable[Rule[Any]]] = {"gang": lifecycle.RULES, "worker": dispatch.RULES}
_VERSIONS = {"kueue": KUEUE, "kuberay": KUBERAY, "k8s": KUBERNETES, "ray": RAY, "volcano": VOLCANO}


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_links_lead_somewhere(doc: Path) -> None:
    links = [link for link in _LINK.findall(_prose(doc)) if "://" not in link]
    assert [link for link in links if not _leads_somewhere(doc, link)] == []


def test_links_are_found() -> None:
    assert sum(len(_LINK.findall(_prose(doc))) for doc in DOCS) > 50


def test_no_file_cites_a_note_outside_of_the_checkout() -> None:
    cited = [(str(path.relative_to(REPO)), note) for path in _READ for note in _NOTE.findall(path.read_text())]
    assert len(cited) > 50
    assert [(path, note) for path, note in cited if not _is_here(REPO / path, note)] == []
    assert [path for path in _READ if "../" + "shared" in path.read_text()] == []


def test_comments_name_files_of_adapter_by_where_they_are() -> None:
    """By their path beside the comment or from adapter/: `report.py`, `worker/report.py`, or quoted worker.report."""
    rooms = "|".join(room.parent.name for room in (REPO / "adapter").glob("*/__init__.py"))
    named = [
        (path, file)
        for path in sorted((REPO / "adapter").rglob("*.py"))
        for file in (
            *re.findall(r"(?<![\w:/.-])[a-z][\w/]*\.py\b", path.read_text()),
            *(f"{found.replace('.', '/')}.py" for found in re.findall(rf"`((?:{rooms})\.\w+)`", path.read_text())),
        )
    ]
    assert len(named) > 30
    assert [(path, file) for path, file in named if not _is_module(path, file)] == []


def test_each_cited_rule_of_upstream_has_a_heading() -> None:
    headings = re.findall(r"^## (.*)$", _prose(REPO / "docs/upstream.md"), re.MULTILINE)
    cited = {rule for path in _READ if path.suffix == ".py" for rule in _UPSTREAM.findall(path.read_text())}
    assert sorted(cited - {*headings}) == []
    assert sorted({*headings} - cited) == []


@pytest.mark.parametrize("project", _VERSIONS)
def test_the_rules_of_upstream_have_the_labs_versions(project: str) -> None:
    text = (REPO / "docs/upstream.md").read_text()
    (row,) = re.findall(rf"^\| `{project}:PATH` \| .*\((https://\S+?)/tree/\S+\).* \| (\S+) \|$", text, re.MULTILINE)
    repository, version = row
    assert version == _VERSIONS[project]
    (tag,) = {*re.findall(rf"{repository}/(?:blob|tree)/([^/)]+)", text)}
    assert tag.removeprefix("ray-") == version


def test_the_packages_are_described_by_their_docstrings(request: pytest.FixtureRequest) -> None:
    written = _MAP.read_text()
    wanted = _ROOM_TABLE.sub(lambda found: f"{found[1]}\n\n{_rooms(found[2])}\n\n{found[3]}", written)
    if request.config.getoption("--update-golden"):
        _MAP.write_text(wanted)
    assert written == wanted, "read the difference, then run this test with --update-golden"


def test_the_rules_are_listed_as_their_tables_have_them(request: pytest.FixtureRequest) -> None:
    written = _MAP.read_text()
    wanted = _RULE_LIST.sub(lambda found: f"{found[1]}\n\n{_rules(found[2])}\n\n{found[3]}", written)
    if request.config.getoption("--update-golden"):
        _MAP.write_text(wanted)
    assert len(_RULE_LIST.findall(written)) == len(_RULES)
    assert written == wanted, "read the difference, then run this test with --update-golden"


def test_every_file_in_the_architecture_exists() -> None:
    named = re.findall(r"`((?:adapter|docs|e2e|hack|kustomize|manifests|tests)/[\w./-]+)`", _MAP.read_text())
    assert len(named) > 100
    assert [path for path in named if not (REPO / path).exists()] == []


def test_every_test_in_a_doc_exists() -> None:
    named = [found for doc in DOCS for found in re.findall(r"`((?:tests|e2e)/[\w/]+\.py)::(\w+)`", doc.read_text())]
    assert len(named) > 30
    assert [one for one in named if f"def {one[1]}(" not in (REPO / one[0]).read_text()] == []


def test_each_event_reason_is_used() -> None:
    source = " ".join(path.read_text() for path in (REPO / "adapter").rglob("*.py"))
    assert [one.name for one in names.EventReason if f"EventReason.{one.name}" not in source] == []


def test_the_picture_shows_every_package() -> None:
    drawn = set(re.findall(r">(\w+)<", (REPO / "docs/architecture.svg").read_text()))
    rooms = [path.parent.name for path in (REPO / "adapter").glob("*/__init__.py")]
    floors = [path.parent.name for path in (REPO / "adapter/shell").glob("*/__init__.py")]
    assert [room for room in (*rooms, *floors) if room not in drawn] == []


def _rooms(top: str) -> str:
    """A table of a folder's packages, each with the first sentence of its docstring; of hack only the top ones."""
    depth = "*/__init__.py" if top == "hack" else "**/__init__.py"
    rooms = [(path.parent, path) for path in sorted((REPO / top).glob(depth)) if path.parent != REPO / top]
    alone = [(path, path) for path in sorted((REPO / top).glob("*.py")) if not path.name.startswith("__")]
    rows = [f"| `{shown.relative_to(REPO)}` | {_question(path)} |" for shown, path in [*alone, *rooms]]
    return "\n".join(["| Package | What it does |", "|---|---|", *rows])


def _rules(table: str) -> str:
    """The rules of a table in order, each with what it does."""
    return "\n".join(f"{n}. *{rule.name}*: {rule.summary}" for n, rule in enumerate(_RULES[table], 1))


def _question(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said, path
    return " ".join(said.partition("\n\n")[0].split())


def _is_here(path: Path, note: str) -> bool:
    return any((place / note).exists() for place in (REPO, REPO / "docs", path.parent))


def _is_module(path: Path, file: str) -> bool:
    return any((place / file).is_file() for place in (path.parent, REPO / "adapter"))


def _leads_somewhere(doc: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = doc.parent / name if name else doc
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(doc: Path) -> Iterator[str]:
    """The anchors that GitHub makes of headings, and those that the page itself has."""
    for heading in re.findall(r"^#+ (.*)$", _prose(doc), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    yield from re.findall(r'<a id="([^"]+)"></a>', _prose(doc))


def _prose(doc: Path) -> str:
    return _FENCE.sub("", doc.read_text())


def test_each_upstream_rule_has_its_request_or_says_why_not() -> None:
    rules = re.findall(r"^## (.+)$", (REPO / "docs/upstream.md").read_text(), re.MULTILINE)
    listed = re.findall(r"^\| \[(.+?)\]\(upstream\.md#", (REPO / "docs/upstream-requests.md").read_text(), re.MULTILINE)
    assert listed == rules
