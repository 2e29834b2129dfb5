"""Draws the `console` blocks of a page as a terminal in which they run.

The page is the recording: a test runs its commands and compares what they print, and
`python -m tests.docs.console_blocks docs/tasks/tour.md` records it again.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "tasks" / "tour.md"
DRAWING = "tour.svg"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "

COLUMNS, CHARACTER, LINE, LEFT, TOP = 122, 7.8, 18, 16, 44
"""columns of the terminal; sizes in pixels"""
TYPING_SECONDS, ANSWER_SECONDS, PAUSE_SECONDS = 0.02, 0.5, 1.5
"""for each character, until a command prints, and until the next command"""

STYLE = """
text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dde4;white-space:pre}
.title{font-family:sans-serif;fill:#8b98a5} .command{fill:#fff;font-weight:bold} .prompt{fill:#6cc644}
.shown{animation:appear .01s both} .typed{animation:appear .01s both,type 1s both}
@keyframes appear{from{opacity:0}} @keyframes type{from{clip-path:inset(0 100% 0 0)}}
@media (prefers-reduced-motion:reduce){.shown,.typed{animation:none}}
"""


def drawing() -> str:
    """An SVG that shows all lines when its animation has ended, or if the reader prefers no motion."""
    session = [line for block in BLOCK.findall(PAGE.read_text()) for line in block.splitlines()]
    rows = list(_rows(session))
    width, height = 2 * LEFT + COLUMNS * CHARACTER, TOP + len(rows) * LINE + 12
    dots = "".join(f'<circle cx="{18 + 18 * n}" cy="17" r="6" fill="#4b5763"/>' for n in range(3))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>A session in a terminal</title><desc>{escape(chr(10).join(session))}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#1b2229"/>{dots}',
            f'<text class="title" x="{width / 2:.0f}" y="22" text-anchor="middle">poolhouse</text>',
            *(text.format(y=TOP + LINE * number) for number, text in enumerate(rows)),
            "</svg>",
            "",
        ]
    )


def _rows(session: list[str]) -> Iterator[str]:
    """The lines of the terminal, each with the time at which it appears. `{y}` is its place."""
    now = 0.0
    for number, line in enumerate(session):
        if line.startswith(PROMPT):
            now += PAUSE_SECONDS if number else 0.0
            for part, words in enumerate(_wrapped(line.removeprefix(PROMPT))):
                seconds = len(words) * TYPING_SECONDS
                prompt = "  " if part else f'<tspan class="prompt">{PROMPT}</tspan>'
                times = f"animation-delay:{now:.2f}s,{now:.2f}s;animation-duration:.01s,{seconds:.2f}s"
                steps = f"animation-timing-function:linear,steps({len(words)})"
                yield _text("typed", f"{times};{steps}", f'{prompt}<tspan class="command">{_shown(words)}</tspan>')
                now += seconds
            now += ANSWER_SECONDS
        else:
            for words in _wrapped(line):
                yield _text("shown", f"animation-delay:{now:.2f}s", _shown(words))


def _text(kind: str, style: str, content: str) -> str:
    return f'<text class="{kind}" xml:space="preserve" x="{LEFT}" y="{{y}}" style="{style}">{content}</text>'


def _wrapped(line: str) -> list[str]:
    return wrap(line, COLUMNS - len(PROMPT), drop_whitespace=False, break_on_hyphens=False) or [""]


def _shown(words: str) -> str:
    return escape(words).replace("{", "{{").replace("}", "}}")
