"""What does an API object say: its names, labels, conditions and times, read tolerantly.

Readers never raise on a missing or odd field: an absent condition is false, an absent label is empty, and so is one of a wrong
type, which no API server gives that is in its right mind. They know no kind of object: what we believe of a Workload, a Placement or a share is read in modules of
their own. Nothing here decides anything.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Raw = Mapping[str, Any]  # an API object, which its reader does not change
RawDict = dict[str, Any]  # an API object that its holder makes or changes
Key = tuple[str, str]  # namespace, name

UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)  # what a raw dict of the wrong shape raises

# Characters. The API takes 32 768, and an object with all of its sentences no more than 1.5 MB: a fleet of a hundred clusters with
# twenty flavors each would say more. Nobody reads on for as long as that.
MAX_TEXT_LENGTH = 16_384
MAX_ITEM_LENGTH = 1_024  # of what is said of one cluster among others
MAX_PRINTABLE_LENGTH = (
    64  # of what somebody else wrote: enough to know it again; a sentence quotes it two or three times
)
# Of a Lease's leaseTransitions, an int32. More is refused, so that whoever wrote as many there would keep everybody else from it for good.
MAX_LEASE_TRANSITIONS = 2**31 - 1


def meta(raw: Raw) -> Raw:
    """The object's metadata, or nothing."""
    return _as_mapping(raw.get("metadata"))


def key_of(raw: Raw) -> Key:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    return _as_text(meta(raw).get("namespace")), _as_text(meta(raw).get("name"))


def uid_of(raw: Raw) -> str:
    """The object's uid, empty when it has none."""
    return _as_text(meta(raw).get("uid"))


def label(raw: Raw, name: str) -> str:
    """A label's value, empty when absent."""
    return _as_text(_as_mapping(meta(raw).get("labels")).get(name))


def annotation(raw: Raw, name: str) -> str:
    """An annotation's value, empty when absent."""
    return _as_text(_as_mapping(meta(raw).get("annotations")).get(name))


def condition(raw: Raw, kind: str) -> Raw:
    """The condition of that type from the object's status, or an empty one."""
    return next(
        (
            found
            for found in _as_mappings(_as_mapping(raw.get("status")).get("conditions"))
            if found.get("type") == kind
        ),
        {},
    )


def is_condition_true(raw: Raw, kind: str) -> bool:
    """Whether the object's condition of that type is True."""
    return condition(raw, kind).get("status") == "True"


def condition_true_since(raw: Raw, kind: str) -> datetime | None:
    """Since when the object's condition of that type is True, None while it is not."""
    return parse_time(condition(raw, kind).get("lastTransitionTime")) if is_condition_true(raw, kind) else None


def updated_condition(previous: Raw, wanted: Mapping[str, Any], now: str) -> dict[str, Any]:
    """A condition as it is to be written at `now` (RFC 3339): the time is that of the one before while its status is the same.

    As Kubernetes's own writers do (k8s:apimachinery/pkg/api/meta/conditions.go, SetStatusCondition).
    """
    since = previous.get("lastTransitionTime") if previous.get("status") == wanted["status"] else None
    return {**wanted, "lastTransitionTime": since or now}


def parse_time(text: object) -> datetime | None:
    """An API timestamp as an aware datetime, None when absent or unreadable."""
    try:
        read = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the latter for a time that its zone moves out of the calendar
        return None


def format_time(when: datetime) -> str:
    """A datetime as the API server writes it: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(when: datetime) -> str:
    """The same with microseconds, as Leases have it; `when` is in UTC."""
    return f"{when:%Y-%m-%dT%H:%M:%S.%f}Z"


def controller_uid(raw: Raw) -> str:
    """The uid of the object's controlling owner, empty when it has none."""
    owners = _as_mappings(meta(raw).get("ownerReferences"))
    return next((_as_text(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _as_mapping(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _as_mappings(value: object) -> list[Raw]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping_field(raw: Raw, name: str) -> Raw:
    """The object in a field; empty when it is absent or no object."""
    return _as_mapping(raw.get(name))


def mapping_list(raw: Raw, name: str) -> list[Raw]:
    """The objects in a list field; what is no object is left out."""
    return _as_mappings(raw.get(name))


def text_field(raw: Raw, name: str) -> str:
    """The text in a field; empty when it is absent or no text."""
    return _as_text(raw.get(name))


def text_list(raw: Raw, name: str) -> tuple[str, ...]:
    """The texts in a list field; what is no text is left out."""
    value = raw.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def whole_field(raw: Raw, name: str) -> int | None:
    """The whole number in a field; None when it is absent or no whole number."""
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_mapping(raw: Raw, name: str) -> dict[str, str]:
    """The texts by name in a field; what is no text is left out."""
    return {key: value for key, value in _as_mapping(raw.get(name)).items() if isinstance(value, str)}


def parse_number(text: str) -> int:
    """A small whole number as a label, an annotation or a slot has it, 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def truncate(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """A text, of which no more is left than an object can hold."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def printable(value: object, max_length: int = MAX_PRINTABLE_LENGTH) -> str:
    """What somebody else wrote, as it may stand in a sentence and in a log: its beginning, without what ends a line or hides."""
    text = str(value)
    if len(text) <= max_length and text.isprintable():
        return text
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:max_length])
    return shown if len(text) <= max_length else f"{shown}…"
