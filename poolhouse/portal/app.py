"""The routes: signing in and out, the page "My VMs" and what it changes, and the screens of VMs."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from markupsafe import Markup
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from poolhouse.cli.output import Failed
from poolhouse.cli.vm_streams import Stream
from poolhouse.console import vm_stream, web
from poolhouse.portal import access, my_vms, work
from poolhouse.portal.console_pages import ConsolePages, NoConsole, choices, is_namespace
from poolhouse.portal.consoles import Consoles, Full
from poolhouse.portal.provider import Provider, Refused, SignInFailed, new_login
from poolhouse.portal.session import Cookies, Session, forget
from poolhouse.portal.settings import Settings
from poolhouse.portal.users import Users, is_due
from poolhouse.runtime.errors import ApiError, Unauthorized

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
CONSOLE = HERE.parent / "console"
STATIC = (HERE / "static", CONSOLE / "static", CONSOLE / "vendored")
MAX_FORM_BYTES = 4096
SCRIPTS: Mapping[str, str] = {"console": "serial.js", "vnc": "screen.js"}
HEALTH = ("/healthz", "/readyz")
Name = Annotated[str, PathParameter(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""A name of an object. Of others, `..` would make the path at the API server that of something else."""
ENDED = "Your session has ended. Sign in again."


class NotSignedIn(Exception):
    """The request has no session, or one that has ended."""


@dataclass(frozen=True)
class Portal:
    settings: Settings
    users: Users
    provider: Provider
    cookies: Cookies
    consoles: Consoles
    now: Callable[[], float]

    def app(self) -> Any:
        return _Guard(_Routes(self).app, self.settings.url)


class _Guard:
    """Answers a request if it may be answered, and adds the headers that limit what a page may load."""

    def __init__(self, app: Any, url: str) -> None:
        self._app, self._url = app, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["path"] in HEALTH:
            await PlainTextResponse("ok")(scope, receive, send)
        else:
            refused = access.refusal(scope.get("method", access.WEBSOCKET), web.request_headers(scope), self._url)
            answer = PlainTextResponse(f"{refused}\n", 403) if refused else self._app
            await answer(scope, receive, web.with_headers(send, access.headers_of(scope["path"])))


class _Routes:
    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._templates = web.templates(HERE / "templates")
        self._templates.globals["has_console"] = portal.settings.max_consoles > 0
        self.app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        for path, handler, method in (
            ("/", self._home, "GET"),
            ("/part", self._part, "GET"),
            ("/static/{name}", self._static, "GET"),
            ("/sign-in", self._sign_in, "GET"),
            ("/callback", self._callback, "GET"),
            ("/sign-out", self._sign_out, "POST"),
            ("/take/{namespace}/{name}", self._take, "POST"),
            ("/release/{namespace}/{name}", self._release, "POST"),
            ("/extend/{namespace}/{name}", self._extend, "POST"),
            ("/screen/{stream}/{namespace}/{name}", self._screen, "GET"),
        ):
            self.app.add_api_route(path, handler, methods=[method], response_model=None)
        self.app.add_api_websocket_route("/stream/{stream}/{namespace}/{name}", self._stream)
        if portal.settings.max_consoles:
            self._add_console()
        self.app.add_exception_handler(NotSignedIn, self._ask_to_sign_in)
        self.app.add_exception_handler(Failed, self._failed)
        self.app.add_exception_handler(ApiError, self._refused)

    def _add_console(self) -> None:
        pages = ConsolePages(self._portal.consoles, self._session, self._renewed)
        self.app.add_api_route("/console/", self._choice, methods=["GET"], response_model=None)
        # A screen ends with the session, and not with the console, so that it needs no watches.
        self.app.add_api_websocket_route("/console/{scope}/stream/{stream}/{namespace}/{name}", self._console_stream)
        for path in ("/console/{namespace}", "/console/{namespace}/{path:path}"):
            self.app.router.routes.append(Route(path, pages))
        self.app.add_exception_handler(NoConsole, self._no_console)
        self.app.add_exception_handler(Full, self._full)

    # Sessions

    async def _session(self, connection: Request | WebSocket) -> Session:
        """The session of a request, with an ID token that is valid. Raises `NotSignedIn`."""
        portal, now = self._portal, self._portal.now()
        session = portal.cookies.session(connection.cookies, now)
        if session is None:
            raise NotSignedIn
        if not is_due(session, now):
            return session
        if session.refresh_token:
            try:
                return await portal.users.renewed(session)
            except SignInFailed:  # or another Pod has just used the refresh token, which may be used once
                log.warning("the session of %s could not be renewed", session.user)
        if not session.is_valid(now):
            raise NotSignedIn
        return session

    def _renewed(self, connection: Request | WebSocket, session: Session) -> list[str]:
        """The cookies of the session if it was renewed. Raises `NotSignedIn` if no browser keeps them."""
        cookies, now = self._portal.cookies, self._portal.now()
        if session == cookies.session(connection.cookies, now):
            return []
        try:
            return cookies.keep(session, connection.cookies, now)
        except ValueError as error:
            log.error("the session of %s has ended: %s", session.user, error)
            raise NotSignedIn from None

    def _keep(self, request: Request, session: Session, answer: Response) -> Response:
        for each in self._renewed(request, session):
            answer.headers.append("set-cookie", each)
        return answer

    async def _ask_to_sign_in(self, request: Request, error: Exception) -> Response:
        """A page with the link to the provider, and no redirect, so that nothing is lost and nobody is surprised."""
        ended = any(name.startswith("__Host-poolhouse-session") for name in request.cookies)
        values = {"ended": ended, "problem": "", "sign_out": "", "path": _path(request)}
        answer = HTMLResponse(self._page("sign_in.html", "Sign in", **values), 401)
        for each in forget(request.cookies):
            answer.headers.append("set-cookie", each)
        return answer

    async def _sign_in(self, path: str = "/") -> Response:
        login = new_login(access.local_path(path))
        try:
            answer = RedirectResponse(await self._portal.provider.sign_in_url(login), 303)
        except SignInFailed as error:
            return self._sign_in_failed(error, login.path)
        for each in self._portal.cookies.keep_login(login, self._portal.now()):
            answer.headers.append("set-cookie", each)
        return answer

    async def _callback(self, request: Request, code: str = "", state: str = "", error: str = "") -> Response:
        portal, sent = self._portal, request.cookies
        login = portal.cookies.login(sent, portal.now())
        path = login.path if login else "/"
        try:
            if login is None or not secrets.compare_digest(state.encode(), login.state.encode()):
                raise Refused("This sign-in was not begun here, or more than ten minutes ago. Sign in again.")
            if error or not code:
                raise Refused("The provider has not signed you in.")
            session = await portal.users.sign_in(code, login)
            kept = portal.cookies.keep(session, sent, portal.now())
        except SignInFailed as failed:
            return self._sign_in_failed(failed, path)
        except ValueError as failed:
            log.error("%s", failed)
            long = SignInFailed("The provider's tokens are too long. Tell your administrator.")
            return self._sign_in_failed(long, path)
        # A page in between, because a browser that comes from the provider might repeat the code with a reload.
        answer = RedirectResponse(path, 303)
        for each in [*forget({name: "" for name in sent if "login" in name}), *kept]:
            answer.headers.append("set-cookie", each)
        return answer

    def _sign_in_failed(self, error: SignInFailed, path: str) -> Response:
        status = 403 if isinstance(error, Refused) else 502
        page = self._page("sign_in.html", "Sign in", ended=False, problem=str(error), sign_out="", path=path)
        return HTMLResponse(page, status)

    async def _sign_out(self, request: Request) -> Response:
        portal = self._portal
        session = portal.cookies.session(request.cookies, portal.now())
        if session is not None:
            portal.consoles.end_session(session)
            if session.refresh_token:
                with suppress(SignInFailed):  # the log has why
                    await portal.provider.revoke(session.refresh_token)
        try:
            url = await portal.provider.sign_out_url()
        except SignInFailed:
            url = ""
        values = {"ended": False, "problem": "", "sign_out": url or "/", "path": "/"}
        answer = HTMLResponse(self._page("sign_in.html", "Signed out", **values))
        for each in forget(request.cookies):
            answer.headers.append("set-cookie", each)
        return answer

    # Pages

    def _page(self, template: str, title: str, **values: Any) -> str:
        return self._templates.get_template(template).render({"title": title, "user": "", **values})

    async def _my_vms(self, session: Session) -> tuple[str, str, int]:
        """The HTML of the user's VMs and pools, a hash of it, and how many seconds it may be shown."""
        api = self._portal.users.client(session)
        seen = await work.seen(api, session.user, self._portal.settings.namespaces)
        values = my_vms.page(seen, api.now())
        html = self._templates.get_template("my_vms.html").render(values)
        return html, web.digest(html), values["seconds"]

    async def _home(self, request: Request, message: str = "", failed: str = "") -> Response:
        session = await self._session(request)
        if not access.is_led_here(request.headers):
            message = ""  # a link must not put words into the mouth of the portal
        html, digest, seconds = await self._my_vms(session)
        values = {"part": Markup(html), "hash": digest, "seconds": seconds, "message": message, "failed": bool(failed)}
        return self._keep(
            request, session, HTMLResponse(self._page("home.html", "My VMs", user=session.user, **values))
        )

    async def _part(self, request: Request) -> Response:
        session = await self._session(request)
        html, digest, seconds = await self._my_vms(session)
        answer = {"part": "vms", "html": html, "hash": digest, "seconds": seconds}
        return self._keep(request, session, JSONResponse(answer))

    async def _choice(self, request: Request, namespace: str = "") -> Response:
        """The namespaces that the console can show."""
        session, problem = await self._session(request), ""
        if is_namespace(namespace):
            return self._keep(request, session, RedirectResponse(f"/console/{namespace}/", 303))
        if namespace:
            problem = "A namespace has at most 63 lower-case letters, digits and hyphens."
        values = await choices(self._portal.users.client(session), self._portal.settings.namespaces)
        page = self._page("console.html", "Console", user=session.user, problem=problem, **values)
        return self._keep(request, session, HTMLResponse(page))

    async def _no_console(self, request: Request, error: Exception) -> Response:
        return self._problem("There is no namespace of this name.", 404)

    async def _full(self, request: Request, error: Exception) -> Response:
        return self._problem(str(error), 503)

    async def _static(self, name: str) -> Response:
        known = {each.name: each for folder in STATIC for each in folder.iterdir()}
        return FileResponse(known[name]) if name in known else PlainTextResponse("not found\n", 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Failed)
        return self._problem(error.format_message(), 422)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        if isinstance(error, Unauthorized):
            return await self._ask_to_sign_in(request, error)
        return self._problem(work.sentence(error), 502)

    def _problem(self, text: str, status: int) -> Response:
        return HTMLResponse(self._page("problem.html", "It is not possible", text=text), status)

    # What users change

    async def _take(self, request: Request, namespace: Name, name: Name) -> Response:
        return await self._change(request, lambda session, api: work.take(api, namespace, name))

    async def _release(self, request: Request, namespace: Name, name: Name) -> Response:
        return await self._change(request, lambda session, api: work.release(api, session.user, namespace, name))

    async def _extend(self, request: Request, namespace: Name, name: Name) -> Response:
        values = await web.form(request, MAX_FORM_BYTES)
        hours = values.get("hours", "")
        return await self._change(request, lambda session, api: work.extend(api, session.user, namespace, name, hours))

    async def _change(self, request: Request, change: Callable[[Session, Any], Any]) -> Response:
        """Returns to the page, so that reloading it does not repeat the change."""
        session = await self._session(request)
        try:
            text, failed = await change(session, self._portal.users.client(session)), ""
        except Failed as error:
            text, failed = error.format_message(), "yes"
        except Unauthorized:
            raise
        except ApiError as error:
            text, failed = work.sentence(error), "yes"
        return self._keep(request, session, RedirectResponse(work.address(text, failed), 303))

    async def _screen(self, request: Request, stream: Stream, namespace: Name, name: Name) -> Response:
        session = await self._session(request)
        await work.vm(self._portal.users.client(session), session.user, namespace, name)
        values = {
            "stream": stream,
            "label": vm_stream.LABELS[stream],
            "name": name,
            "url": f"/stream/{stream}/{namespace}/{name}",
            "script": SCRIPTS[stream],
        }
        page = self._page("screen.html", f"{values['label']} of {name}", user=session.user, **values)
        return self._keep(request, session, HTMLResponse(page))

    async def _stream(self, browser: WebSocket, stream: Stream, namespace: Name, name: Name) -> None:
        await self._connect(
            browser, stream, namespace, lambda session, api: work.vm(api, session.user, namespace, name)
        )

    async def _console_stream(
        self, browser: WebSocket, scope: str, stream: Stream, namespace: Name, name: Name
    ) -> None:
        async def vm(session: Session, api: Any) -> str:
            return name

        await self._connect(browser, stream, namespace, vm)

    async def _connect(
        self, browser: WebSocket, stream: str, namespace: str, vm_of: Callable[[Session, Any], Awaitable[str]]
    ) -> None:
        """Ends with the session. The user's right to the stream is checked when it begins, as by `kubectl`."""
        headers: list[tuple[bytes, bytes]] = []
        try:
            session = await self._session(browser)
            headers = [(b"set-cookie", each.encode()) for each in self._renewed(browser, session)]
            api = self._portal.users.client(session)
            vm = await vm_of(session, api)
        except NotSignedIn:
            await _close(browser, ENDED, headers)
        except Failed as error:
            await _close(browser, error.format_message(), headers)
        except ApiError as error:
            await _close(browser, work.sentence(error), headers)
        else:
            left, vmi = session.ends - self._portal.now(), (namespace, vm)
            await vm_stream.connect(browser, api, stream, vmi, lambda: asyncio.sleep(left, ENDED), headers=headers)


def _path(request: Request) -> str:
    """The page that was asked for, to which the browser returns. A form cannot be sent again."""
    if request.method not in access.SAFE_METHODS:
        return "/"
    query = request.scope["query_string"]
    return access.local_path((request.scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1"))


async def _close(browser: WebSocket, text: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await browser.accept(headers=headers)  # browsers hide why a websocket was refused
    await browser.close(vm_stream.CLOSED, vm_stream.reason(text))
