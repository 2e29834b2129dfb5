"""Defines domains in a libvirt of its own, without the defaulter: `plain_libvirt ROOT UID GID`.

Reads a JSON list of domains from standard input, and writes a list of libvirt's answers: the XML, and the XML of the
same domain after it was defined from that; or libvirt's error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from defaulter.driver import Libvirt
from defaulter.errors import DomainRejected
from defaulter.root_directories import environment
from defaulter.worker import drop_privileges


def main() -> None:
    root, (uid, gid) = Path(sys.argv[1]), map(int, sys.argv[2:])
    drop_privileges(uid, gid)
    os.environ.update(environment(root))
    host = Libvirt(root)
    answers = []
    for text in json.load(sys.stdin):
        try:
            with host.scratch() as define:
                first = define(text)
                answers.append({"xml": first, "again": define(first)})
        except DomainRejected as error:
            answers.append({"error": str(error)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
