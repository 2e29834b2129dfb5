"""Running something as the unprivileged user that guests belong to."""

from __future__ import annotations

import pwd
from typing import Any


def as_user(uid: int | None) -> dict[str, Any]:
    """Arguments of `subprocess` for that user, none where it is ourselves."""
    return {} if uid is None else {"user": uid, "group": group_of(uid), "extra_groups": []}


def group_of(uid: int) -> int:
    """Its own group; one of the same number where the machine does not know the user."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid
