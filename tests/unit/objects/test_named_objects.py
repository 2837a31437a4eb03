"""An entry of a WorkerCluster counts for its names and namespaces, and a path for whole segments."""

from typing import Any

import pytest

from adapter.objects.named_objects import NamedObject, NamedPath, find_object, find_path, name_in_cluster

RAYDATA = NamedObject(name="raydata", renamed="ray-ksa", namespaces=("demo",))
ANY = NamedObject(name="*")


@pytest.mark.parametrize(
    ("entries", "name", "namespace", "want"),
    [
        pytest.param([RAYDATA], "raydata", "demo", "ray-ksa", id="another name there"),
        pytest.param([NamedObject(name="raydata")], "raydata", "any", "raydata", id="the same name, in each namespace"),
        pytest.param([RAYDATA], "raydata", "other", None, id="another namespace"),
        pytest.param([RAYDATA], "raydata", "", None, id="no namespace is none of the list"),
        pytest.param([RAYDATA], "ray", "demo", None, id="another name"),
        pytest.param([ANY], "raydata", "demo", "raydata", id="any name"),
        pytest.param([RAYDATA, ANY], "raydata", "demo", "ray-ksa", id="the first entry counts"),
        pytest.param([RAYDATA, ANY], "raydata", "other", "raydata", id="the first entry for the namespace counts"),
        pytest.param([], "raydata", "demo", None, id="nothing is named"),
    ],
)
def test_the_name_of_an_object_there(entries: list[NamedObject], name: str, namespace: str, want: str | None) -> None:
    entry = find_object(entries, name, namespace)
    assert (entry and name_in_cluster(entry, name)) == want


def paths(*entries: Any) -> list[NamedPath]:
    return [
        entry if isinstance(entry, NamedPath) else NamedPath(prefix=entry, namespaces=("demo",)) for entry in entries
    ]


SCRATCH = NamedPath(prefix="/scratch", read_only=False)


@pytest.mark.parametrize(
    ("entries", "path", "want"),
    [
        pytest.param(paths("/models"), "/models", "/models", id="the path itself"),
        pytest.param(paths("/models"), "/models/llama/7b", "/models", id="a path beneath it"),
        pytest.param(paths("/models"), "/models/", "/models", id="a slash at its end"),
        pytest.param(paths("/models"), "//models/./a", "/models", id="empty segments and dots"),
        pytest.param(paths("/models"), "/models-of-others", None, id="a longer segment"),
        pytest.param(paths("/models"), "/mode", None, id="a shorter segment"),
        pytest.param(paths("/models"), "/", None, id="the root"),
        pytest.param(paths("/models"), "/models/../etc", None, id="upwards"),
        pytest.param(paths("/models"), "/x/../models", None, id="upwards to the path"),
        pytest.param(paths("/models"), "models", None, id="a relative path"),
        pytest.param(paths("/models"), "", None, id="no path"),
        pytest.param(paths("/"), "/etc", None, id="the root cannot be named"),
        pytest.param(paths("/models/.."), "/etc", None, id="a prefix that goes upwards"),
        pytest.param(paths("/a", "/a/b"), "/a/b/c", "/a/b", id="the longest prefix counts"),
        pytest.param(paths(NamedPath(prefix="/a", namespaces=("other",))), "/a", None, id="another namespace"),
        pytest.param(paths(SCRATCH), "/scratch", "/scratch", id="a writable path"),
        pytest.param(paths(SCRATCH), "/scratch/link", None, id="beneath a writable path, where a link could be"),
        pytest.param(
            paths(NamedPath(prefix="/s", read_only=False, namespaces=("other",)), "/s"), "/s/link", None,
            id="beneath a path that others may write to",
        ),
        pytest.param(paths(SCRATCH, "/scratch/a"), "/scratch/a", None, id="a longer prefix beneath a writable path"),
    ],
)  # fmt: skip
def test_the_entry_of_a_host_path(entries: list[NamedPath], path: str, want: str | None) -> None:
    entry = find_path(entries, path, "demo")
    assert (entry and entry.prefix) == want


def test_an_empty_list_of_namespaces_counts_for_nobody() -> None:
    assert find_object([NamedObject(name="raydata", namespaces=())], "raydata", "demo") is None
    assert find_path([NamedPath(prefix="/a", namespaces=())], "/a", "demo") is None
