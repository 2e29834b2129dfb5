"""Formats each log record as one line, for users (text) or programs (json)."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]

RECORD_ATTRIBUTES = {
    *logging.LogRecord("", 0, "", 0, "", (), None).__dict__,
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def configure(service: str, format: Format = "text", level: str | int = "INFO") -> None:
    """Writes all log records of the process to stderr. Pass fields in `extra`: `log.info("scaled out", extra={"by":
    3})`."""
    # gRPC's core writes each failed TLS handshake to stderr, past this format. The caller gets the error in any case.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service) if format == "json" else TextFormatter(service))
    logging.basicConfig(level=level.upper() if isinstance(level, str) else level, handlers=[handler], force=True)
    # At INFO, these loggers log the same facts as Poolhouse.
    for name in ("uvicorn.error", "aiohttp.access", "asyncio", "kubernetes"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Formatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line = {**line, **_fields(record), **line}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {self._service} {record.name}: "
        line += printable(record.getMessage() + fields)
        if record.exc_info and record.exc_info[0] is not None:
            for text in self.formatException(record.exc_info).splitlines():
                line += "\n    " + printable(text)
        return line


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, super().format(record).split("\n")))


def escape_unconfigured() -> None:
    """Escapes what Python prints of log records in a program that does not call `configure`, such as a command."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_EscapingFormatter())


def printable(text: str) -> str:
    """Escapes control characters, so that names in users' objects cannot add lines or move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in RECORD_ATTRIBUTES}
