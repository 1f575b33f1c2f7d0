"""Log lines on stderr: the constant message, and what was recorded with it."""

from __future__ import annotations

import logging

_FORMAT = "[%(levelname).1s %(asctime)s %(name)s] %(message)s"
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "app_name"}

QUIET_LOGGERS = ("botocore", "boto3", "s3transfer", "urllib3", "asyncio", "parso", "tornado.access")


class ExtraFormatter(logging.Formatter):
    """A formatter that shows a record's ``extra`` as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with extra values after the message."""
        line = super().format(record)
        extra = [f"{k}={v!r}" for k, v in vars(record).items() if k not in _PLAIN]
        if not extra:
            return line
        first, newline, rest = line.partition("\n")
        return f"{first} ({' '.join(extra)}){newline}{rest}"


def set_up_logging(level: str) -> None:
    """Send what is logged to stderr from ``level`` on; libraries from WARNING on at the least."""
    handler = logging.StreamHandler()
    handler.setFormatter(ExtraFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.captureWarnings(True)
