"""The routes: pages, their changes as a stream of events, and acts."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from markupsafe import Markup, escape
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import with_namespace
from poolhouse.cli.detach import WouldDelete
from poolhouse.cli.output import Failed
from poolhouse.cli.vm_streams import Stream
from poolhouse.console import access, acts, change, pages, vm_stream, web
from poolhouse.console.act import CONFIRMED, Act, Target
from poolhouse.console.context import Context, Missing
from poolhouse.console.page import OBJECT_PATH, Page, Part, object_path, with_query
from poolhouse.runtime.errors import ApiError, Forbidden, Unreachable

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
TABS = (
    ("overview", "/", "Overview"),
    ("warm", "/warm", "Warm pools"),
    ("policies", "/policies", "Policies"),
    ("fleet", "/fleet", "Hardware"),
    ("change", "/change", "Plan a change"),
)
MAX_BODY_BYTES = 1024 * 1024
GONE = "The console does not answer. What you see is no longer up to date; start `poolhouse console` again."
Route = tuple[str, Callable[..., Awaitable[Response]]]
ACT = "/act/{act}/{short}/{namespace}/{name}"
RENDER_SECONDS = 0.5
"""shortest time between two looks at a page's parts"""
REFRESH_SECONDS = 10.0
"""time after which a page is rendered again without a change, because it shows ages"""


@dataclass(frozen=True)
class Frame:
    """Where a console is, and what surrounds its pages."""

    root: str
    """the path below which the pages are"""
    host: str = ""
    """the API server"""
    gone: str = GONE
    """what a page says that gets no answer"""
    in_portal: bool = False
    """whether the user has signed in at the portal, which then has more pages"""
    max_body_bytes: int = MAX_BODY_BYTES
    keeps_drafts: bool = True
    """whether all requests of a user reach this process, so that the address of a plan can name a draft"""


@dataclass
class Renderer:
    """Renders pages and parts as HTML."""

    frame: Frame
    context: Context

    def __post_init__(self) -> None:
        self._templates = web.templates(HERE / "templates")
        self._templates.filters["code"] = code
        state = self.context.state
        self._templates.globals |= {
            "root": self.frame.root,
            "host": self.frame.host,
            "gone": self.frame.gone,
            "in_portal": self.frame.in_portal,
            "namespace_only": state.namespace,
            "scope": f"namespace {state.namespace}" if state.namespace else "all namespaces",
            "user": state.user,
            "tabs": TABS,
            "link": with_query,
        }

    def part(self, part: Part) -> tuple[str, str]:
        """The HTML of a part, and a hash of it."""
        html = self._templates.get_template(part.template).render({**OPTIONAL, **part.values})
        return html, web.digest(html)

    def connected(self, page: Page) -> Page:
        """The page, and before it what does not work now."""
        state = self.context.state
        values = {**connection_values(state.problems), "outage": state.outage}
        return replace(page, parts=[Part("connection", "connection.html", values), *page.parts])

    def parts(self, page: Page) -> dict[str, tuple[str, str]]:
        return {each.name: self.part(each) for each in page.parts}

    def page(self, page: Page, live: str = "", message: str = "", failed: bool = False, made: str = "") -> str:
        """The whole page. `live` is the path whose changes the browser follows; empty for a page that stays."""
        parts = [
            f'<section id="part-{name}" data-hash="{digest}">{html}</section>'
            for name, (html, digest) in self.parts(page).items()
        ]
        return self._templates.get_template("layout.html").render(
            page=page, parts=[Markup(each) for each in parts], live=live, message=message, failed=failed, made=made
        )


def code(message: str) -> Markup:
    """A message of the command line as HTML. What it has in backticks are commands."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(message))))


OPTIONAL: Mapping[str, Any] = {"budget": None, "problem": "", "namespace": "", "outage": ""}
"""values that some parts leave out"""


def connection_values(problems: Mapping[str, ApiError]) -> Mapping[str, Any]:
    """The lost connection once, the kinds that the user may not list or watch, and each other problem."""
    lost = ""
    hidden, unwatched = list[str](), list[str]()
    others: dict[str, list[str]] = {}
    for plural, error in problems.items():
        if isinstance(error, Forbidden):
            (unwatched if error.of_watch else hidden).append(plural)
        elif isinstance(error, Unreachable) or error.status in PROXY_ERRORS:
            lost = lost or str(error)
        else:
            others.setdefault(str(error), []).append(plural)
    told = [(", ".join(kinds), text) for text, kinds in others.items()]
    return {"lost": lost, "hidden": hidden, "unwatched": unwatched, "others": told}


PROXY_ERRORS = (502, 503, 504)
"""statuses of a proxy whose API server is away, and of an API server that ends"""


class Console:
    """The application for one user. It answers each request: its caller checks whose request it is."""

    def __init__(self, context: Context, frame: Frame) -> None:
        self._context, self._frame, self.root = context, frame, frame.root
        self._renderer = Renderer(frame, context)
        self._ending, self._planning = asyncio.Event(), asyncio.Lock()
        self._app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        self._app.add_exception_handler(Failed, self._failed)
        reads: tuple[Route, ...] = (
            ("", self._home),
            ("/static/{name}", self._static),
            ("/events", self._events),
            (ACT, self._confirm),
            ("/{path:path}", self._page),
        )
        writes: tuple[Route, ...] = (("/change", self._change), (ACT, self._act))
        for routes, methods in ((reads, ["GET", "HEAD"]), (writes, ["POST"])):
            for path, handler in routes:
                self._app.add_api_route(self.root + path, handler, methods=methods, response_model=None)
        self._app.add_api_websocket_route(self.root + "/stream/{stream}/{namespace}/{name}", self._stream)

    def end_streams(self) -> None:
        """Ends the streams that are open. Browsers follow the changes by new ones, with the cookies that they have."""
        self._ending.set()
        self._ending = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Failed)
        return self._text(422, "It is not possible", error.format_message())

    async def _home(self) -> Response:
        return RedirectResponse(f"{self.root}/")

    async def _static(self, name: str) -> Response:
        known = {each.name: each for folder in ("static", "vendored") for each in (HERE / folder).iterdir()}
        if name not in known:
            return PlainTextResponse("not found\n", 404)
        return FileResponse(known[name])

    async def _stream(self, browser: WebSocket, stream: Stream, namespace: str, name: str) -> None:
        ending = self._ending

        async def stopped() -> str:
            await ending.wait()
            return "The console was stopped."

        await vm_stream.connect(browser, self._context.state.api, stream, (namespace, name), stopped)

    async def _page(self, request: Request, path: str) -> Response:
        query = dict(request.query_params)
        message, failed = query.pop("message", ""), query.pop("failed", "") == "yes"
        made = found if OBJECT_PATH.fullmatch(found := query.pop("made", "")) else ""
        if not access.is_led_here(request.headers):
            message = ""  # a link must not put words into the mouth of the console
        status, page = await self._build(f"/{path}", query)
        # The page reloads itself, so that an object that was missing, or could not be read, appears.
        live = f"/{path}" + with_query(query) if page.live or status in (404, 502) else ""
        return HTMLResponse(await self._html(page, live, message, failed, made), status)

    async def _build(self, path: str, query: Mapping[str, str]) -> tuple[int, Page]:
        try:
            return 200, await pages.build(self._context, path, query)
        except Missing as error:
            return 404, text_page("Not found", str(error))
        except Failed as error:
            return 422, text_page("It is not possible", error.format_message())
        except ApiError as error:
            return 502, text_page("The API server refused it, or did not answer", error.message)

    async def _events(self, request: Request, path: str, have: str = "") -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")  # without the stream, which has no end
        parts = urlsplit(path)
        query = dict(parse_qsl(parts.query))
        known = dict(each.split(":", 1) for each in have.split(",") if ":" in each)
        return StreamingResponse(self._changes(request, parts.path, query, known), media_type="text/event-stream")

    async def _changes(
        self, request: Request, path: str, query: Mapping[str, str], known: dict[str, str]
    ) -> AsyncIterator[str]:
        """Yields the parts of the page that have changed, as server-sent events."""
        state, ending = self._context.state, self._ending
        yield "retry: 2000\n\n"
        while not ending.is_set() and not await request.is_disconnected():
            version = state.version
            began = asyncio.get_running_loop().time()
            for name, html, digest in await self._rendered(path, query, known):
                if known.get(name) != digest:
                    known[name] = digest
                    yield f"data: {json.dumps({'part': name, 'hash': digest, 'html': html})}\n\n"
            took = asyncio.get_running_loop().time() - began
            # A page with thousands of VMs takes longer to render, and must not fill the processor.
            await _pause(ending, max(RENDER_SECONDS, 4 * took))
            await self._until_changed(ending, version)

    async def _rendered(self, path: str, query: Mapping[str, str], known: Container[str]) -> list[tuple[str, str, str]]:
        """The parts of a page, or what became of it: an object that is deleted leaves its last state on the page. The
        browser shows the `known` parts."""
        status, page = await self._build(path, query)
        try:
            if status == 200 or page.parts[0].name in known:
                found = await self._context.state.compute(self._renderer.parts, self._renderer.connected(page))
                return [(name, html, digest) for name, (html, digest) in found.items()]
            text = page.parts[0].values["text"]
        except Failed as error:
            text = error.format_message()
        values = {**connection_values(self._context.state.problems), "others": [("This page", text)]}
        return [("connection", *self._renderer.part(Part("connection", "connection.html", values)))]

    async def _until_changed(self, ending: asyncio.Event, version: Any) -> None:
        waiting = asyncio.ensure_future(self._context.state.wait(version, REFRESH_SECONDS))
        stopping = asyncio.ensure_future(ending.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _act(self, request: Request, act: str, short: str, namespace: str, name: str) -> Response:
        values = await web.form(request, self._frame.max_body_bytes)
        back = object_path(short, namespace, name)
        try:
            found, target = await self._target(act, short, namespace, name)
            # A loss that has changed since the user was asked is asked about again.
            if (lost := found.destroys(target, values)) and lost != values.pop(CONFIRMED, ""):
                # The question has an address of its own, so that a browser can return to it.
                return RedirectResponse(f"{self.root}/act/{found.name}{back}{with_query(values)}", 303)
            done = await acts.perform(self._context.state.api, self._context.cluster, found, target, values)
        except WouldDelete as error:
            return HTMLResponse(await self._html(self._confirmation(found, target, values, error.consequence, back)))
        except (Missing, Failed, ApiError) as error:
            return self._refused(error, back)
        return self._back(back, done.message, made=done.made)

    async def _confirm(self, request: Request, act: str, short: str, namespace: str, name: str) -> Response:
        """The question whether to do an act that destroys something."""
        values = dict(request.query_params)
        back = object_path(short, namespace, name)
        try:
            found, target = await self._target(act, short, namespace, name)
            lost = found.destroys(target, values)
            preview = await self._preview(found, target, values)
        except (Missing, Failed, ApiError) as error:
            return self._refused(error, back)
        return HTMLResponse(await self._html(self._confirmation(found, target, values, lost, back, preview)))

    def _refused(self, error: Missing | Failed | ApiError, back: str) -> Response:
        if isinstance(error, Missing):
            return self._text(404, "Not found", str(error))
        message = error.format_message() if isinstance(error, Failed) else with_namespace(error)
        return self._back(back, message, failed=True)

    async def _preview(self, act: Act, target: Target, values: Mapping[str, str]) -> Json | None:
        """What the act would do, for the question whether to do it. None if the act does not foresee it."""
        if act.preview is None:
            return None
        state, cluster = self._context.state, replace(self._context.cluster, namespace=target.namespace)
        found = await act.preview(state.api, cluster, target, values)
        effects = await change.effects_of_act(state, target.resource, target.document, found.document)
        return {"message": found.message, **effects}

    async def _target(self, act: str, short: str, namespace: str, name: str) -> tuple[Act, Target]:
        """The act and its object. Raises `Missing`, `Failed` or an API error."""
        found = acts.BY_NAME.get(act)
        if found is None:
            raise Missing(f"There is no act {act}.")
        target = await pages.target_of(self._context, short, "" if namespace == "-" else namespace, name)
        if target.kind not in found.kinds:
            raise Failed(f"{found.label} is not for a {target.kind}.")
        if not found.available(target):
            raise Failed(f"{found.label} is not possible now; the page of {target.name} shows what is.")
        return found, target

    def _confirmation(
        self, act: Act, target: Target, values: Mapping[str, str], lost: str, back: str, preview: Json | None = None
    ) -> Page:
        values_shown = {key: value for key, value in values.items() if key in {each.name for each in act.fields}}
        part = Part(
            "confirm",
            "confirm.html",
            {
                "label": act.label,
                "target": acts.short(target),
                "destroys": lost,
                "help": act.help,
                "name": target.name,
                "values": values_shown,
                "command": act.shell(target, values),
                "action": f"/act/{act.name}{back}",
                "back": back,
                "preview": preview,
            },
        )
        return Page(f"{act.label} {target.name}", [part], live=False)

    async def _change(self, request: Request) -> Response:
        values = await web.form(request, self._frame.max_body_bytes)
        async with self._planning:  # a plan may keep a processor busy for seconds
            return await self._planned(values)

    async def _planned(self, values: Mapping[str, str]) -> Response:
        context = self._context
        found = await change.submit(context.state, context.cluster, values)
        if isinstance(found, change.Applied):
            return self._back(found.path, found.message)
        if not self._frame.keeps_drafts:
            page = await change.plan(context.state, context.cluster, found)
            return HTMLResponse(await self._html(page))
        return RedirectResponse(f"{self.root}/change?plan={self._context.drafts.add(found)}", 303)

    def _back(self, path: str, message: str, *, failed: bool = False, made: str = "") -> Response:
        """Returns to a page, so that reloading it does not repeat the act. `made` is the page of an object that the act
        has created."""
        query = (
            f"?message={quote(message[:1000])}{'&failed=yes' if failed else ''}{f'&made={quote(made)}' if made else ''}"
        )
        return RedirectResponse(f"{self.root}{path}{query}", 303)

    def _text(self, status: int, title: str, text: str) -> Response:
        return HTMLResponse(self._renderer.page(self._renderer.connected(text_page(title, text))), status)

    async def _html(self, page: Page, live: str = "", message: str = "", failed: bool = False, made: str = "") -> str:
        """The HTML of a page. The parts of a large pool take a fifth of a second."""
        page = self._renderer.connected(page)
        return await self._context.state.compute(self._renderer.page, page, live, message, failed, made)


def text_page(title: str, text: str) -> Page:
    return Page(title, [Part("text", "text.html", {"title": title, "text": text})], live=False)


async def _pause(ending: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ending.wait()
