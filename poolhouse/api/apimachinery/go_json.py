"""The size of a document as API servers store and send it."""

import json

from poolhouse.api.apimachinery.unstructured import Json

_ESCAPED = {"<": 5, ">": 5, "&": 5, "\u2028": 3, "\u2029": 3}
"""Characters for which Go writes an escape of 6 bytes, and how many bytes that adds."""


def go_json_size(document: Json) -> int:
    """Bytes of the document in the JSON of Go's encoder."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode(errors="surrogatepass")) + sum(text.count(each) * more for each, more in _ESCAPED.items())
