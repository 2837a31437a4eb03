"""Zone and region: of a worker cluster, and those that a worker group requires."""

from typing import Final, NamedTuple

from adapter import names
from adapter.objects.unstructured import Raw, annotation, printable, text_field


class Location(NamedTuple):
    """An empty field means none for a cluster, and any for a worker group."""

    zone: str = ""
    region: str = ""


class LocationKeys(NamedTuple):
    """By which keys a worker group requires one field of a location."""

    field: str
    annotation: str  # on its template
    ray_label: str  # in its `labels`


ANYWHERE: Final = Location()
LOCATION_KEYS: Final = (
    LocationKeys("zone", names.ZONE_ANNOTATION, names.RAY_ZONE_LABEL),
    LocationKeys("region", names.REGION_ANNOTATION, names.RAY_REGION_LABEL),
)


def labelled_location(labels: Raw) -> Location:
    """What the Ray labels of a worker group require."""
    return Location._make(text_field(labels, keys.ray_label) for keys in LOCATION_KEYS)


def annotated_location(template: Raw) -> Location:
    """What the annotations of a worker group's template require."""
    return Location._make(annotation(template, keys.annotation) for keys in LOCATION_KEYS)


def merge_locations(first: Location, second: Location) -> Location:
    return Location._make(value or other for value, other in zip(first, second, strict=True))


def ray_labels(location: Location) -> dict[str, str]:
    """The labels of Ray nodes there."""
    return {keys.ray_label: value for keys, value in zip(LOCATION_KEYS, location, strict=True) if value}


def location_mismatch(required: Location, actual: Location) -> str:
    """A fragment on the first field in which a cluster is not where a group must run; empty if there is none."""
    for keys, wanted, value in zip(LOCATION_KEYS, required, actual, strict=True):
        if wanted not in ("", value):
            where = f"this cluster is in {keys.field} {value}" if value else f"this cluster has no {keys.field}"
            return f"requires {keys.field} {printable(wanted)}, and {where}"
    return ""
