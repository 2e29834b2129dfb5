"""Whether a guest can run on its new node before its memory is there. QEMU itself is asked: it depends on the kernel,
on a setting that may change while we run, on QEMU's version and on whose process it is.
"""

from __future__ import annotations

import json
import subprocess

from local.processes import as_user

QUESTION = (
    {"execute": "qmp_capabilities"},
    {
        "execute": "migrate-set-capabilities",
        "arguments": {"capabilities": [{"capability": "postcopy-ram", "state": True}]},
        "id": "asked",
    },
    {"execute": "quit"},
)
# A QEMU that waits for a guest is the one that needs the kernel's help.
COMMAND = (
    *("qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none"),
    *("-incoming", "defer", "-qmp", "stdio"),
)
ANSWER_SECONDS = 10.0
REMEDY = "as root, 'sysctl -w vm.unprivileged_userfaultfd=1' on this machine allows it"


def why_no_post_copy(uid: int | None) -> str | None:
    """Why guests of that user cannot be moved by post-copy now; None if they can. Takes a moment."""
    try:
        done = subprocess.run(
            COMMAND,
            input="".join(map(json.dumps, QUESTION)),
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
            **as_user(uid),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"post-copy is not possible here: QEMU cannot be asked for it: {error}"
    return parse_answer(done.stdout, done.stderr)


def parse_answer(answers: str, complaints: str) -> str | None:
    """What QEMU's answers, one JSON document a line, and its complaints come to."""
    for line in answers.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if answer.get("id") != "asked":
            continue
        if "error" not in answer:
            return None
        why = (complaints.strip().splitlines() or [answer["error"].get("desc", "no")])[-1].strip()
        remedy = f"; {REMEDY}" if "not permitted" in why else ""
        return f"post-copy is not possible here: QEMU says {why!r}{remedy}"
    return "post-copy is not possible here: QEMU ended without an answer"
