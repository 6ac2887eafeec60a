"""One request over HTTP/1.1, and its response."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol
from urllib.parse import parse_qs

# Unread bytes of a request's body; beyond this, its sender has to wait.
UNREAD_BYTES_MAX = 256 << 10


class BodyTooLarge(Exception):
    """The body of a request is larger than its reader accepts."""


class Line(Protocol):
    """The part of a connection that one exchange needs."""

    def respond(self, status: int, headers: list[tuple[str, str]], *, whole: bytes | None) -> None:
        """Send a response: complete, or with None its beginning."""
        ...

    def send_part(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """The response is complete."""
        ...

    async def writable(self) -> None:
        """Wait while the client does not read."""
        ...

    def want_body(self, wanted: bool) -> None:
        """Whether more of the body may be received."""
        ...


class Exchange:
    """The connection feeds the body; a handler reads it and responds."""

    __slots__ = ("_body", "_ended", "_line", "_reading", "_unread_bytes", "begun", "headers", "method", "path", "query")

    def __init__(self, line: Line, method: str, target: str, headers: dict[str, str]) -> None:
        self._line = line
        self.method = method
        self.path, _, query = target.partition("?")
        self.query = parse_qs(query, keep_blank_values=True, max_num_fields=100) if query.count("&") < 100 else {}
        self.headers = headers  # by lower-case name
        self.begun = False  # whether a part of the response was sent
        self._body: deque[bytes] = deque()
        self._unread_bytes = 0
        self._ended = False
        self._reading: asyncio.Future[None] | None = None

    # --- the request ---

    def feed(self, data: bytes) -> None:
        """A part of the body has arrived."""
        self._body.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self._line.want_body(False)
        self._wake()

    def body_ended(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    async def read(self) -> bytes | None:
        """The next part of the body; None at its end."""
        while not self._body:
            if self._ended:
                return None
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        data = b"".join(self._body)
        self._body.clear()
        self._unread_bytes = 0
        self._line.want_body(True)
        return data

    async def whole_body(self, bytes_max: int) -> bytes:
        """The complete body. Raises `BodyTooLarge`."""
        body = bytearray()
        while (part := await self.read()) is not None:
            body += part
            if len(body) > bytes_max:
                raise BodyTooLarge
        return bytes(body)

    # --- the response ---

    def respond(self, status: int, body: bytes, content_type: str, *headers: tuple[str, str]) -> None:
        """Send the whole response."""
        self.begun = True
        self._line.respond(status, [("Content-Type", content_type), *headers], whole=body)

    async def send(self, data: bytes, content_type: str) -> None:
        """Send a part of a response whose length is not known. Waits while the client does not read."""
        if not self.begun:
            self.begun = True
            self._line.respond(200, [("Content-Type", content_type)], whole=None)
        self._line.send_part(data)
        await self._line.writable()

    def finish(self, content_type: str) -> None:
        """End a response that was sent in parts, perhaps none."""
        if self.begun:
            self._line.finish()
        else:
            self.respond(200, b"", content_type)

    def end_with(self, data: bytes) -> None:
        """Send the last part of a response, and end it."""
        self._line.send_part(data)
        self._line.finish()
