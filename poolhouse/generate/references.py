"""The table of docs/reference/rights.md that says which rights the author of an object needs."""

from pathlib import Path

from webhook.references import ASKED, NOT_ASKED

PAGE = Path("docs/reference/rights.md")
BEGIN, END = "<!-- references -->", "<!-- end of references -->"


def page(written: str) -> str:
    """The page with a new table between the marks."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_tables()}\n{END}{after}"


def _tables() -> str:
    rows = [
        "| Object | Field | The author needs | Where | Why | Asked again |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in ASKED:
        right = f"`get {each.resource.plural}{'.' if each.resource.group else ''}{each.resource.group}`"
        again = "Before each new image" if each.again else "No"
        kinds = ", ".join(kind.kind for kind in each.kinds)
        rows.append(f"| {kinds} | {each.field} | {right} | {each.where} | {each.why} | {again} |")
    others = ["| Not asked | Because |", "| --- | --- |", *(f"| {field} | {why} |" for field, why in NOT_ASKED)]
    return "\n".join((*rows, "", *others, ""))
