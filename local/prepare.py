"""`python -m local.prepare`: the control plane's programs, before anybody waits for them in an `up`."""

from __future__ import annotations

import sys
from pathlib import Path

from local.binaries import find_programs, link_kubectl
from local.build import build
from local.components import StackError
from local.download import Releases


def main() -> int:
    def echo(text: str) -> None:
        print(text, flush=True)

    try:
        programs = find_programs(echo, download=Releases().download, build=build)
    except StackError as broken:
        print(broken, file=sys.stderr)
        return 1
    print(f"control plane: {programs.directory} ({programs.origin})")
    if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
        print("put kubectl beside poolhouse: this machine had none that is new enough")
    return 0


if __name__ == "__main__":
    sys.exit(main())
