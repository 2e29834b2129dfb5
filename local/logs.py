"""The components' logs: bounded, and read from the end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LIMIT_BYTES = 16 * 1024 * 1024


def trim(log: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Move what a log has into `<log>.1` once it is over the limit. Its writer appends and need not know; the few lines
    that it writes between copy and cut are lost."""
    if not log.exists() or log.stat().st_size <= limit_bytes:
        return False
    shutil.copyfile(log, log.with_suffix(log.suffix + ".1"))
    os.truncate(log, 0)
    return True


def tail(log: Path, lines: int = 10, width: int = 300) -> str:
    """The last lines, as they were since the file is read from near its end, none of them endless."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])
