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
LONGEST = 16_384
LONGEST_OF_ONE = 1_024  # of what is said of one cluster among others
LONGEST_QUOTED = 64  # of what somebody else wrote: enough to know it again; a sentence quotes it two or three times
# Of a Lease's leaseTransitions, an int32. More is refused, so that whoever wrote as many there would keep everybody else from it for good.
MOST_TRANSITIONS = 2**31 - 1


def meta(raw: Raw) -> Raw:
    """The object's metadata, or nothing."""
    return _map(raw.get("metadata"))


def key_of(raw: Raw) -> Key:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    return _text(meta(raw).get("namespace")), _text(meta(raw).get("name"))


def uid_of(raw: Raw) -> str:
    """The object's uid, empty when it has none."""
    return _text(meta(raw).get("uid"))


def label(raw: Raw, name: str) -> str:
    """A label's value, empty when absent."""
    return _text(_map(meta(raw).get("labels")).get(name))


def annotation(raw: Raw, name: str) -> str:
    """An annotation's value, empty when absent."""
    return _text(_map(meta(raw).get("annotations")).get(name))


def condition(raw: Raw, kind: str) -> Raw:
    """The condition of that type from the object's status, or an empty one."""
    return next((found for found in _maps(_map(raw.get("status")).get("conditions")) if found.get("type") == kind), {})


def is_true(raw: Raw, kind: str) -> bool:
    """Whether the object's condition of that type is True."""
    return condition(raw, kind).get("status") == "True"


def true_since(raw: Raw, kind: str) -> datetime | None:
    """Since when the object's condition of that type is True, None while it is not."""
    return moment(condition(raw, kind).get("lastTransitionTime")) if is_true(raw, kind) else None


def turned(before: Raw, wanted: Mapping[str, Any], now: str) -> dict[str, Any]:
    """A condition as it is to be written at `now` (RFC 3339): the time is that of the one before while its status is the same.

    As Kubernetes's own writers do (k8s:apimachinery/pkg/api/meta/conditions.go, SetStatusCondition).
    """
    since = before.get("lastTransitionTime") if before.get("status") == wanted["status"] else None
    return {**wanted, "lastTransitionTime": since or now}


def moment(text: object) -> datetime | None:
    """An API timestamp as an aware datetime, None when absent or unreadable."""
    try:
        read = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the latter for a time that its zone moves out of the calendar
        return None


def timestamp(when: datetime) -> str:
    """A datetime as the API server writes it: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def microtime(when: datetime) -> str:
    """The same with microseconds, as Leases have it; `when` is in UTC."""
    return f"{when:%Y-%m-%dT%H:%M:%S.%f}Z"


def controller_uid(raw: Raw) -> str:
    """The uid of the object's controlling owner, empty when it has none."""
    owners = _maps(meta(raw).get("ownerReferences"))
    return next((_text(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _map(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> list[Raw]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping_field(raw: Raw, name: str) -> Raw:
    """The object in a field; empty when it is absent or no object."""
    return _map(raw.get(name))


def mapping_list(raw: Raw, name: str) -> list[Raw]:
    """The objects in a list field; what is no object is left out."""
    return _maps(raw.get(name))


def text_field(raw: Raw, name: str) -> str:
    """The text in a field; empty when it is absent or no text."""
    return _text(raw.get(name))


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
    return {key: value for key, value in _map(raw.get(name)).items() if isinstance(value, str)}


def number(text: str) -> int:
    """A small whole number as a label, an annotation or a slot has it, 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def bounded(text: str, most: int = LONGEST) -> str:
    """A text, of which no more is left than an object can hold."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(found: object, most: int = LONGEST_QUOTED) -> str:
    """What somebody else wrote, as it may stand in a sentence and in a log: its beginning, without what ends a line or hides."""
    text = str(found)
    if len(text) <= most and text.isprintable():
        return text
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:most])
    return shown if len(text) <= most else f"{shown}…"
