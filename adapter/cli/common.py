"""Helpers of the verbs that read a cluster: object files, wait hints, tables, exit codes.

They use the kubeconfig that kubectl would use. An unreadable file raises `InvalidJob`.
"""

import argparse
import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from adapter.cli import event_loop
from adapter.cli.terminal import clean_line, print_note, print_text
from adapter.diagnosis.job_document import Document
from adapter.objects import api_messages
from adapter.objects.job_manifest import InvalidJob
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin

T = TypeVar("T")
TableRow = Sequence[str]

EXIT_OK, EXIT_ERROR, EXIT_USAGE = 0, 1, 2
HINT_AFTER_SECONDS = 2.0
UNKNOWN_USER = "The manager cluster does not accept your credentials: log in again, or check your kubeconfig."


async def await_with_hint(awaited: Coroutine[Any, Any, T], message: str) -> T:
    """Await the result; print the message to stderr after `HINT_AFTER_SECONDS`."""
    hint = asyncio.get_running_loop().call_later(HINT_AFTER_SECONDS, print_note, message)
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
    """Read a document from the manager, print it as `args.output` says, and return its exit code."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    try:
        document = event_loop.run_command(_read_document(args, read))
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(api_error_message(error), EXIT_ERROR)
    print_text(format_document(document, args.output) if args.output in ("json", "yaml") else render(document))
    return code(document)


async def _read_document(args: argparse.Namespace, read: Callable[[Client], Coroutine[Any, Any, Document]]) -> Document:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await await_with_hint(read(client), "Waiting for the manager cluster ...")
    finally:
        await client.close()


def api_error_message(error: ApiError) -> str:
    """A sentence for an error response of the manager's API server."""
    return UNKNOWN_USER if error.status == 401 else error.message or str(error)


def rolebinding_subject(error: ApiError) -> str:
    """The subject option of `kubectl create rolebinding` for a forbidden user, where the error names one."""
    user = api_messages.forbidden_user(error.message)
    return f"--user={shlex.quote(user)}" if user else "--group=GROUP"


def print_error(sentence: str, code: int) -> int:
    """Print the sentence to stderr; return `code`."""
    print_note(sentence)
    return code


def format_table(rows: Sequence[TableRow]) -> str:
    """The rows as lines with aligned columns; the first row is the header."""
    rows = [[clean_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return join_lines(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{clean_line(line)}\n" for line in lines)


def format_document(document: Mapping[str, Any], output: str) -> str:
    """A document as indented `json` or as `yaml`, with a final newline."""
    if output == "json":
        return format_json(document, indent=2) + "\n"
    return yaml.safe_dump(dict(document), sort_keys=False, width=160)


def format_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """A document as JSON, in printable ASCII characters only; `json` leaves DEL as it is."""
    return json.dumps(document, indent=indent).replace("\x7f", "\\u007f")


def read_text(filename: str) -> str:
    """The text of a file; "-" is stdin."""
    try:
        return sys.stdin.read() if filename == "-" else Path(filename).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidJob(f"{filename} cannot be read: {reason}.") from None


def read_objects(text: str) -> list[dict[str, Any]]:
    """The YAML mappings in a text, in order; other documents are skipped."""
    try:
        return [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise InvalidJob(f"The file is not YAML{f', see line {mark.line + 1}' if mark else ''}.") from None


def expand_lists(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Replace each List, such as `kubectl get -o yaml` prints, by its items."""
    for raw in objects:
        if str(raw.get("kind") or "").endswith("List") and isinstance(raw.get("items"), list):
            yield from (item for item in raw["items"] if isinstance(item, dict))
        else:
            yield raw
