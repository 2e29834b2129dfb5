"""Numbers in sentences for users."""

from collections.abc import Sequence

MAX_NAMES = 5


def count_verb(number: int, singular: str, plural: str) -> str:
    """Returns `1 is` or `2 are`."""
    return f"{number} {singular if number == 1 else plural}"


def count_noun(number: int, noun: str, singular: str = "", plural: str = "") -> str:
    """Returns `1 VM` or `2 VMs`, followed by the verb of that form if both forms are given."""
    found = count_verb(number, noun, f"{noun}s")
    verb = singular if number == 1 else plural
    return f"{found} {verb}" if verb else found


def count_of(number: int, total: int, noun: str, singular: str = "", plural: str = "") -> str:
    """Returns `1 of 1 VM` or `2 of 3 VMs`, followed by the verb that agrees with it if both forms are given."""
    found = f"{number} of {count_noun(total, noun)}"
    verb = singular if 1 in (number, total) else plural
    return f"{found} {verb}" if verb else found


def join_first(texts: Sequence[str], most: int = MAX_NAMES, separator: str = ", ") -> str:
    """Returns the first texts for a message, such as `a, b, c and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more
