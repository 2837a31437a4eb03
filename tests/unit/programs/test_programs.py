"""The programs that pods run are sent whole, and an old Python runs them without this package."""

import ast
import sys
from pathlib import Path

import pytest

from adapter import programs
from hack.lab.base.paths import REPO

FOLDER = REPO / "adapter" / "programs"
SENT = {
    "drain_hook": programs.DRAIN_HOOK,
    "probe_server": programs.PROBE_SERVER,
    "probe_client": programs.PROBE_CLIENT,
    "relay_hook": programs.RELAY_HOOK,
}
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")


def test_each_program_is_sent_under_one_name() -> None:
    assert sorted(SENT) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_all_of_it_is_sent_but_its_docstring(path: Path) -> None:
    written, sent = ast.parse(path.read_text()), ast.parse(SENT[path.stem])
    assert ast.get_docstring(written) and not ast.get_docstring(sent)
    assert ast.dump(ast.Module(written.body[1:], [])) == ast.dump(sent) and sent.body
    assert SENT[path.stem][0] not in "#\n", "nothing before its first line is sent"


@pytest.mark.parametrize("name", SENT)
def test_the_oldest_python_that_it_names_can_read_it(name: str) -> None:
    ast.parse(SENT[name], feature_version=(3, 8))


@pytest.mark.parametrize("name", SENT)
def test_it_needs_the_standard_library_alone_and_ray_where_ray_is(name: str) -> None:
    nodes = list(ast.walk(ast.parse(SENT[name])))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found = plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    rooms = {module.partition(".")[0] for module in found}
    assert rooms - sys.stdlib_module_names == ({"ray"} if name == "drain_hook" else set())
