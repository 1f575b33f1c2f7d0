"""Log records as one JSON line each, on stderr."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for ``record``."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update((k, v) for k, v in vars(record).items() if k not in _STANDARD)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def log_as_json(level: str) -> None:
    """Send all log records of this process to stderr, from ``level`` upwards."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
