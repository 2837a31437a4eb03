"""What do the verbs have in common that ask a cluster: files that hold objects, waits that are told, columns, exit codes?

The rights are the user's own, by the kubeconfig that kubectl would take. What cannot be read is an Unusable with a sentence.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from adapter.diagnosis.job_document import Document
from adapter.objects import api_messages
from adapter.objects.rayjob import InvalidJob
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin

T = TypeVar("T")
TableRow = Sequence[str]

EXIT_OK, EXIT_ERROR, EXIT_USAGE = 0, 1, 2  # exit codes
HINT_AFTER_SECONDS = 2.0  # before a person wonders whether anything happens
UNKNOWN_USER = "The manager cluster does not know you: log in again, or check your kubeconfig's credentials."


async def await_with_hint(awaited: Coroutine[Any, Any, T], message: str) -> T:
    """Wait for an answer, and say so once it takes long."""
    hint = asyncio.get_running_loop().call_later(HINT_AFTER_SECONDS, lambda: print(message, file=sys.stderr))
    try:
        return await awaited
    finally:
        hint.cancel()


def print_document(
    args: argparse.Namespace,
    read: Callable[[Client], Coroutine[Any, Any, Document]],
    render: Callable[[Document], str],
    code: Callable[[Document], int],
) -> int:
    """Read a document of the manager, print it as it was asked for, and return its exit code; trouble is one sentence on the standard
    error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        found = asyncio.run(_read_document(args, read))
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be asked: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(api_error_message(error), EXIT_ERROR)
    print(render(found) if args.output == "table" else format_document(found, args.output), end="")
    return code(found)


async def _read_document(args: argparse.Namespace, read: Callable[[Client], Coroutine[Any, Any, Document]]) -> Document:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await await_with_hint(read(client), "Waiting for the manager cluster ...")
    finally:
        await client.close()


def api_error_message(error: ApiError) -> str:
    """What the manager said no with, as a sentence."""
    return UNKNOWN_USER if error.status == 401 else error.message or str(error)


def rolebinding_subject(error: ApiError) -> str:
    """The option of `kubectl create rolebinding` for who was refused, as far as the API server told."""
    user = api_messages.forbidden_user(error.message)
    return f"--user='{user}'" if user else "--group=GROUP"


def print_error(sentence: str, code: int) -> int:
    """Say on the standard error what is wrong; returns the exit code."""
    print(sentence, file=sys.stderr)
    return code


def format_table(rows: Sequence[TableRow]) -> str:
    """The rows as lines, each ended, with their cells below each other; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return join_lines(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def format_document(document: Mapping[str, Any], output: str) -> str:
    """A document for programs, as indented `json` or as `yaml`; its last line ended."""
    if output == "json":
        return json.dumps(document, indent=2) + "\n"
    return yaml.safe_dump(dict(document), sort_keys=False, width=160)


def read_text(filename: str) -> str:
    """The text of a file; "-" is the standard input."""
    try:
        return sys.stdin.read() if filename == "-" else Path(filename).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidJob(f"{filename} cannot be read: {why}.") from None


def read_objects(text: str) -> list[dict[str, Any]]:
    """The objects in a text, in their order; documents that are no objects are left out."""
    try:
        return [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise InvalidJob(f"The file is not YAML{f', see line {mark.line + 1}' if mark else ''}.") from None


def expand_lists(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same with the items of lists, such as `kubectl get -o yaml` prints, in place of the lists."""
    for one in objects:
        if str(one.get("kind") or "").endswith("List") and isinstance(one.get("items"), list):
            yield from (item for item in one["items"] if isinstance(item, dict))
        else:
            yield one
