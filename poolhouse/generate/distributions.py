"""`python -m poolhouse.generate.distributions` writes what the client and the agent have in common with other packages.

Both are distributions of their own, which import none of the other packages. The repository does not contain these
files: `make setup`, `make client`, `make agent`, `make lint` and the tests write them.
"""

import os
from functools import cache
from pathlib import Path

from poolhouse.generate import agent_protocol, python_client

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def write() -> None:
    """Writes the files that are missing or out of date, once in a process. Several processes may write at the same
    time."""
    for path, text in {**python_client.files(), **agent_protocol.modules()}.items():
        target = ROOT / path
        if not target.is_file() or target.read_text() != text:
            draft = target.with_suffix(f".{os.getpid()}")
            draft.write_text(text)
            draft.replace(target)


if __name__ == "__main__":
    write()
