"""MAC addresses in the notations that KubeVirt accepts, which are those of Go's `net.ParseMAC`."""

import re
from typing import Any

PATTERN = r"[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2}){5}|(?:-[0-9a-fA-F]{2}){5})|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2}"
_WHOLE = re.compile(PATTERN)


def normalize(address: Any) -> str:
    """`02-00-00-AB-CD-E1` and `0200.00ab.cde1` as `02:00:00:ab:cd:e1`, the notation of libvirt. Any other text is only
    written in lower case."""
    text = str(address)
    if not _WHOLE.fullmatch(text):
        return text.lower()
    digits = re.sub("[^0-9a-f]", "", text.lower())
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))
