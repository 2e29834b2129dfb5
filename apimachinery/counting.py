"""Numbers in sentences for users."""


def count_noun(number: int, noun: str, singular: str = "", plural: str = "") -> str:
    """Returns `1 VM` or `2 VMs`, followed by the verb of that form if both forms are given."""
    one = number == 1
    found = f"{number} {noun}" if one else f"{number} {noun}s"
    verb = singular if one else plural
    return f"{found} {verb}" if verb else found
