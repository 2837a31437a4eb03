"""Formats of the controller's log: text for people, JSON for log collectors. No message of either breaks a line."""

import json
import logging
from datetime import UTC, datetime

from adapter.objects.unstructured import format_micro_time, printable

_MAX_LINE_LENGTH = 16 * 1024


class TextFormatter(logging.Formatter):
    """One line per record, and any trace below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without control characters: parts of a message may be text of a cluster or a tenant."""
        return printable(super().formatMessage(record), _MAX_LINE_LENGTH)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339, UTC), level, logger, message, and any trace."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON in ASCII: no message breaks a line, and a reader needs no encoding."""
        record_fields = {
            "time": format_micro_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = {"trace": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(record_fields | trace)


FORMATTERS = {"text": TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"), "json": JsonFormatter()}
