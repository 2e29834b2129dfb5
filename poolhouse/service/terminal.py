"""Text for terminals. Control characters in objects of the cluster are shown, so that no terminal obeys them."""

import unicodedata

CONTROLS = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode's categories of characters that move the cursor, hide text or change its direction"""
HARMLESS = frozenset("\n\t\u200c\u200d")
"""the line feed, the tab, and the joiners that some scripts and emojis need"""
NAMED = {"\x1b": "^["}
"""kubectl's form of the escape character; the others have the form of a string in a program"""


class Styled(str):
    """Escaped text with colours of Poolhouse, which is not escaped again."""

    __slots__ = ()


def escaped(text: str, *, one_line: bool = False) -> str:
    """Returns the text with a visible form of each control character. `one_line`: of line feeds and tabs too."""
    if isinstance(text, Styled) or text.isprintable():
        return text
    return "".join(_escaped(each) if _is_control(each) or (one_line and each in "\n\t") else each for each in text)


def has_controls(text: str) -> bool:
    return not text.isprintable() and any(map(_is_control, text))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in CONTROLS and character not in HARMLESS


def _escaped(character: str) -> str:
    return NAMED.get(character) or character.encode("unicode_escape").decode()
