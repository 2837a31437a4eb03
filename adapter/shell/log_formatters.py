"""What does a line of the controller's log look like, for people and for what collects logs?

The same records in both forms: what is logged, and what never is, stands where it is logged.
"""

import json
import logging
from datetime import UTC, datetime

from adapter.objects.unstructured import format_micro_time


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, and a trace where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write all but ASCII as escapes: no message ends a line, and whatever reads it needs no encoding."""
        said = {
            "time": format_micro_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = {"trace": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(said | trace)


FORMATTERS = {"text": logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"), "json": JsonFormatter()}
