r"""Writes a request body as JSON that an API server reads alike as JSON and as YAML.

The API server parses an apply as YAML
(k8s:staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/fieldmanager.go). YAML has no surrogate pairs:
`\\ud83e\\udd96`, as JSON escapes a character beyond the first 65 536, is an error there, so such characters stay
unescaped. Other characters outside ASCII are escaped: YAML ends lines at some of them and rejects others. A lone
surrogate is replaced.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPED = re.compile("[\x7f-\uffff]")


def to_json(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    # orjson, which reads responses, rejects numbers and texts that a user's file may hold.
    return _ESCAPED.sub(_escape_character, json.dumps(body, ensure_ascii=False))


def _escape_character(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{0xFFFD if 0xD800 <= point <= 0xDFFF else point:04x}"
