"""Does every link in what users and contributors read lead to a file that is there, and to a heading in it?"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lab.base.paths import REPO

DOCS = (*REPO.glob("*.md"), *REPO.glob("docs/*.md"))
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_links_lead_somewhere(doc: Path) -> None:
    links = [link for link in _LINK.findall(_prose(doc)) if "://" not in link]
    assert [link for link in links if not _leads_somewhere(doc, link)] == []


def test_links_are_found() -> None:
    assert sum(len(_LINK.findall(_prose(doc))) for doc in DOCS) > 50


def _leads_somewhere(doc: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = doc.parent / name if name else doc
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(doc: Path) -> Iterator[str]:
    """As GitHub makes them of headings."""
    for heading in re.findall(r"^#+ (.*)$", _prose(doc), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _prose(doc: Path) -> str:
    return _FENCE.sub("", doc.read_text())
