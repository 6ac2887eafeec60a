"""The last answers of a guardian that stops: further requests are refused as not executed.

After a reset a client would not know whether its request was executed, although nothing of it was passed on. Our own
clients repeat a request that was refused in this way elsewhere; for Mooncake's it is a failed call, as after a reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from leasehold.runtime.receiving import readable_within, receive
from leasehold.runtime.tcp import quiet_ms
from leasehold.wire.frame import MAGIC, REQUEST_HEAD, REQUEST_HEAD_BYTES, Err
from leasehold.wire.sending import refusal

_RECV_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.01
QUIET_MS: Final = 1000
"""A client that was answered this long ago has no request on its way, even if its machine is busy."""
_STOPPING: Final = "this node stops; the request was not executed"


class RequestRefuser:
    """Turns the bytes of a client, from the beginning of a request on, into refusals. Pure."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # bytes until the end of the current request
        self._seq = 0
        self.malformed = False

    @property
    def between_requests(self) -> bool:
        """Whether the bytes so far end at the end of a request."""
        return not (self._head or self._left)

    def feed(self, data: bytes) -> bytes:
        """The answers to the requests that end in `data`."""
        answers = bytearray()
        at = 0
        while at < len(data) and not self.malformed:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                if self._left:
                    break
            else:
                wanted = REQUEST_HEAD_BYTES - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) < REQUEST_HEAD_BYTES:
                    break
                magic, _, _, _, self._seq, _, body_bytes, attachment_bytes = REQUEST_HEAD.unpack(self._head)
                self._head, self._left, self.malformed = b"", body_bytes + attachment_bytes, magic != MAGIC
                if self._left or self.malformed:
                    continue
            answers += refusal(self._seq, Err.NOT_CONNECTED, _STOPPING)
        return bytes(answers)


async def refuse_requests(client: socket.socket) -> None:
    """Refuse every request, until the client closes or has been quiet; then close. The caller sets the longest time.

    A client that has just been answered may be sending its next request. Closing then would reset the connection, and
    the client would not know the outcome of a request that was never read.
    """
    loop, refuser = asyncio.get_running_loop(), RequestRefuser()
    refused_until_s = loop.time() + QUIET_MS / 1000  # for a kernel that does not know how long a connection is quiet
    with contextlib.suppress(OSError):
        while not refuser.malformed:
            quiet = quiet_ms(client)
            left_s = refused_until_s - loop.time() if quiet is None else (QUIET_MS - quiet) / 1000
            if left_s <= 0 and refuser.between_requests:
                break
            if not await readable_within(client, max(left_s, _POLL_S)):
                continue
            if not (data := await receive(client, _RECV_BYTES)):
                break
            if answers := refuser.feed(data):
                await loop.sock_sendall(client, answers)
        client.close()  # an orderly end: everything was read
