"""A Prometheus that has one series for each query, and records what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


@dataclass
class FakePrometheus:
    url: str = ""
    queries: list[str] = field(default_factory=list)
    status: int = 200


@contextmanager
def fake_prometheus() -> Iterator[FakePrometheus]:
    found = FakePrometheus()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            found.queries.append(form["query"][0])
            values = [[float(form[each][0]), "0.5"] for each in ("start", "end")]
            result = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
            self.send_response(found.status)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "success", "data": result}).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
