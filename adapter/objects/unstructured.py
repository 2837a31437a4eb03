"""Tolerant readers of API objects of any kind: names, labels, conditions and times.

The readers never raise: an absent value or one of a wrong type is empty (None for numbers and times), and an item of a
wrong type is left out. The other modules of this package have typed records of each kind.
"""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

Raw = Mapping[str, Any]  # an API object, read only
RawDict = dict[str, Any]  # an API object that its owner may change
Key = tuple[str, str]  # namespace, name

UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)  # raised by a raw dict of a wrong shape

# Limits in characters. The API accepts 32 768 in a message and 1.5 MB in an object; without our limits, a fleet of a
# hundred clusters with twenty flavors each would exceed that.
MAX_TEXT_LENGTH = 16_384
MAX_ITEM_LENGTH = 1_024  # of the message about one cluster among others
MAX_PRINTABLE_LENGTH = 64  # of a foreign text, which a sentence may quote two or three times
NAME_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # of an object, as a path has it
# leaseTransitions is an int32. Writers start again at 0 above it, so that a forged number does not lock the Lease.
MAX_LEASE_TRANSITIONS = 2**31 - 1


def meta(raw: Raw) -> Raw:
    return _as_mapping(raw.get("metadata"))


def key_of(raw: Raw) -> Key:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    return _as_text(meta(raw).get("namespace")), _as_text(meta(raw).get("name"))


def uid_of(raw: Raw) -> str:
    return _as_text(meta(raw).get("uid"))


def label(raw: Raw, name: str) -> str:
    return _as_text(_as_mapping(meta(raw).get("labels")).get(name))


def annotation(raw: Raw, name: str) -> str:
    return _as_text(_as_mapping(meta(raw).get("annotations")).get(name))


def condition(raw: Raw, kind: str) -> Raw:
    """The condition of type `kind`; empty without one."""
    return next(
        (
            entry
            for entry in _as_mappings(_as_mapping(raw.get("status")).get("conditions"))
            if entry.get("type") == kind
        ),
        {},
    )


def is_condition_true(raw: Raw, kind: str) -> bool:
    return condition(raw, kind).get("status") == "True"


def condition_true_since(raw: Raw, kind: str) -> datetime | None:
    """The transition time of a condition; None while it is not True."""
    return parse_time(condition(raw, kind).get("lastTransitionTime")) if is_condition_true(raw, kind) else None


def updated_condition(previous: Raw, wanted: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The condition to write at `now` (RFC 3339); its transition time changes only with its status.

    Source: k8s:apimachinery/pkg/api/meta/conditions.go, SetStatusCondition.
    """
    since = previous.get("lastTransitionTime") if previous.get("status") == wanted["status"] else None
    return {**wanted, "lastTransitionTime": since or now}


def parse_time(text: object) -> datetime | None:
    """Read an API timestamp; the datetime has a time zone."""
    try:
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # OverflowError: the zone moves the time out of the calendar
        return None


def format_time(when: datetime) -> str:
    """A datetime as the API server writes it: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(when: datetime) -> str:
    """A UTC datetime with microseconds, as Leases have it."""
    return f"{when:%Y-%m-%dT%H:%M:%S.%f}Z"


def controller_uid(raw: Raw) -> str:
    """The uid of the controlling owner."""
    owners = _as_mappings(meta(raw).get("ownerReferences"))
    return next((_as_text(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _as_mapping(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _as_mappings(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping_field(raw: Raw, name: str) -> Raw:
    return _as_mapping(raw.get(name))


def mapping_list(raw: Raw, name: str) -> list[Raw]:
    return _as_mappings(raw.get(name))


def text_field(raw: Raw, name: str) -> str:
    return _as_text(raw.get(name))


def text_list(raw: Raw, name: str) -> tuple[str, ...]:
    value = raw.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def whole_field(raw: Raw, name: str) -> int | None:
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_mapping(raw: Raw, name: str) -> dict[str, str]:
    return {key: value for key, value in _as_mapping(raw.get(name)).items() if isinstance(value, str)}


def version_of(raw: Raw) -> int:
    """The resource version as a number: versions of one kind in one cluster compare so (Kubernetes KEP-5504)."""
    return parse_version(str(meta(raw).get("resourceVersion") or ""))


def parse_version(text: str) -> int:
    """A version as a number; 0 for an invalid one. etcd counts in 63 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def parse_number(text: str) -> int:
    """Read a whole number of a label, an annotation or a slot; 0 for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def truncate(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """A text as an object holds it: cut, and without control characters other than line breaks and tabs.

    A condition repeats what a worker cluster reports, and `kubectl get -o` writes it to a terminal as it is.
    """
    short = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    return short if short.isprintable() else "".join(map(_storable_character, short))


def _storable_character(char: str) -> str:
    return char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}"


def printable(value: object, max_length: int = MAX_PRINTABLE_LENGTH) -> str:
    """A foreign text as it may be in a sentence or a log: cut, and without control characters."""
    text = str(value)
    if len(text) <= max_length and text.isprintable():
        return text
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:max_length])
    return shown if len(text) <= max_length else f"{shown}…"


def printable_list(texts: Collection[object], most: int) -> str:
    """Foreign texts as they may be in a sentence, and how many more than `most` there are: `a, b and 3 more`."""
    listed = ", ".join(printable(text) for text in islice(texts, most))
    return f"{listed} and {len(texts) - most} more" if len(texts) > most else listed
