"""How is a body written, so that an API server reads what was meant, whether it takes it for JSON or for YAML?

What is applied goes through a YAML parser (k8s:staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/fieldmanager.go), and YAML
knows no pairs of surrogates: `\\ud83e\\udd96`, as JSON escapes a character beyond the first 65 536, is an error there. So those stand
as they are, and all else outside ASCII is escaped, since YAML takes some characters for the end of a line and refuses others. A
surrogate alone is no character, and is replaced. What is in the body is not looked at.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPED = re.compile("[\x7f-\uffff]")


def to_json(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """The body as JSON that means the same as YAML."""
    # Not by orjson, which is for what comes: it refuses numbers and texts that a user's file may hold.
    return _ESCAPED.sub(_escape_character, json.dumps(body, ensure_ascii=False))


def _escape_character(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{0xFFFD if 0xD800 <= point <= 0xDFFF else point:04x}"
