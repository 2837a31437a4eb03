"""Writes a request body as JSON that an API server reads alike as JSON and as YAML.

The API server reads an apply through a YAML parser
(k8s:staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/fieldmanager.go). YAML has no surrogate pairs:
`\\ud83e\\udd96`, as JSON escapes a character beyond the first 65 536, is an error there. So those characters are not
escaped. All others outside ASCII are escaped, since YAML takes some for the end of a line and rejects others. A lone
surrogate is no character, and is replaced. The content of the body is not checked.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPED = re.compile("[\x7f-\uffff]")


def to_json(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """The body as JSON that has the same meaning as YAML."""
    # orjson, which reads responses, rejects numbers and texts that a user's file may hold.
    return _ESCAPED.sub(_escape_character, json.dumps(body, ensure_ascii=False))


def _escape_character(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{0xFFFD if 0xD800 <= point <= 0xDFFF else point:04x}"
