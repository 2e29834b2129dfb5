"""The deadline of a whole request, with a server on a real socket that sends a byte at a time."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from threading import Event, Thread

import pytest
from poolhouse_client.client import AsyncClient, Client, Unreachable
from poolhouse_client.connection import Connection

LENGTH = 500
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % LENGTH
ANSWER = HEAD + b'{"items": [], "metadata": {"resourceVersion": "1"}}'.ljust(LENGTH)
SECONDS = 0.3
BYTE_SECONDS = 0.02


class Server:
    """Answers each request with some bytes at once, and then with a byte at a time, for longer than the deadline. No
    single read waits for long."""

    def __init__(self, at_once: bytes) -> None:
        self._at_once, self._stop = at_once, Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.1)
        self._threads = [Thread(target=self._accept)]
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.most = 0
        """the bytes that a client has waited for"""

    def __enter__(self) -> Server:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()
        self._listening.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            self._threads.append(Thread(target=self._answer, args=(connection,)))
            self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        sent = len(self._at_once)
        with connection, suppress(OSError):  # the client closes it
            connection.recv(65536)
            connection.sendall(self._at_once)
            while sent < len(ANSWER) and not self._stop.wait(BYTE_SECONDS):
                connection.sendall(ANSWER[sent : sent + 1])
                sent += 1
        self.most = max(self.most, sent)


@pytest.mark.parametrize("at_once", [pytest.param(b"", id="headers"), pytest.param(HEAD, id="body")])
async def test_a_server_that_sends_slowly_does_not_hold_a_call(at_once: bytes) -> None:
    with Server(at_once) as server:
        connection = Connection(server.url, ssl.create_default_context(), None, "team")
        with Client(connection=connection, timeout_seconds=SECONDS) as client:
            with pytest.raises(Unreachable, match=r"before the deadline|timed out"):
                client.pools.list()
            assert list(client.pools.watch(timeout_seconds=SECONDS)) == []
        async with AsyncClient(connection=connection, timeout_seconds=SECONDS) as other:
            with pytest.raises(Unreachable, match="before the deadline"):
                await other.pools.list()
            assert [each async for each in other.pools.watch(timeout_seconds=SECONDS)] == []
    assert server.most < len(at_once) + len(HEAD)


def test_a_proxy_is_asked() -> None:
    with Server(ANSWER) as proxy:
        url, tls = "http://cluster.invalid", ssl.create_default_context()
        with Client(connection=Connection(url, tls, None, "team", proxy=proxy.url), timeout_seconds=5) as client:
            assert client.pools.list() == []
