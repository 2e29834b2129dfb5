"""The user's cache: files that Poolhouse can download or make again."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def home_dir() -> Path:
    """The user's home; `/`, as in containers, if neither HOME nor the password database has one."""
    found = os.path.expanduser("~")
    return Path(found if found != "~" else "/")


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    return Path(env.get("XDG_CACHE_HOME") or home_dir() / ".cache") / "poolhouse"


@contextmanager
def writing_cache(make_error: Callable[[str], Exception], directory: Path | None = None) -> Iterator[None]:
    """Turns an `OSError`, such as a full disk or a home that is read-only, into an error that says what to do."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror} ({error.filename})" if error.filename else error.strerror or str(error)
        raise make_error(
            f"the cache {directory or cache_dir()} cannot be written: {why}; "
            "set XDG_CACHE_HOME to a directory of yours with free space"
        ) from error
