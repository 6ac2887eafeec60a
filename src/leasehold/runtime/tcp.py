"""Linux operations on one TCP connection, valid also while another process has the same connection open."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import select
import socket
import struct
import termios
from typing import Final

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_NO_ADDRESS: Final = bytes(16)  # AF_UNSPEC
_INT: Final = struct.Struct("i")
_ACKED_AND_RECEIVED: Final = struct.Struct("QQ")
_ACKED_AT: Final = 120  # tcpi_bytes_acked and tcpi_bytes_received in `struct tcp_info`, since Linux 4.1
_INFO_BYTES: Final = _ACKED_AT + _ACKED_AND_RECEIVED.size
_LAST_DATA: Final = struct.Struct("I4xI")  # milliseconds since data was last sent and received
_LAST_DATA_AT: Final = 44
_SIOCOUTQ: Final = termios.TIOCOUTQ  # bytes written and not yet acknowledged; FIONREAD: received and not yet read
_LOOKS_MAX: Final = 8

_libc: Final = ctypes.CDLL(None, use_errno=True)


def reset_on_close(sock: socket.socket) -> None:
    """Make the last close send RST, so that the peer does not mistake it for an orderly end."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def reset(sock: socket.socket) -> None:
    """Close with RST, unless another process has the connection open too."""
    reset_on_close(sock)
    sock.close()


def cut(sock: socket.socket) -> None:
    """End the connection with RST immediately, even if another process has it open; the socket remains to be closed.

    Closing a socket ends nothing while another process has it open. Connecting it to AF_UNSPEC does.
    """
    _libc.connect(sock.fileno(), _NO_ADDRESS, len(_NO_ADDRESS))


def peer_has_closed(sock: socket.socket) -> bool:
    """Whether the peer has closed its side, or the connection is dead. Reads no byte."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def send_immediately(sock: socket.socket) -> None:
    """Do not wait for more bytes before sending. The plain side of a TLS connection is no TCP, and never waits."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel detect dead peers: a half-open connection ends within half a minute."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def passed_bytes(sock: socket.socket) -> int | None:
    """The sum of all bytes ever read from and written to an accepted connection, by any process.

    None if the kernel does not report it. Exact if no process reads or writes meanwhile: bytes that arrive or are
    acknowledged between the system calls change the last result, and then all calls are repeated.
    """
    fd = sock.fileno()
    try:
        for _ in range(_LOOKS_MAX):
            before = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            if len(before) < _INFO_BYTES:
                return None
            (unread,) = _INT.unpack(fcntl.ioctl(fd, termios.FIONREAD, bytes(_INT.size)))
            (unacked,) = _INT.unpack(fcntl.ioctl(fd, _SIOCOUTQ, bytes(_INT.size)))
            after = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            acked, received = _ACKED_AND_RECEIVED.unpack_from(after, _ACKED_AT)
            if (acked, received) == _ACKED_AND_RECEIVED.unpack_from(before, _ACKED_AT):
                return int(received - unread + acked + unacked)
    except OSError:
        pass
    return None


def quiet_ms(sock: socket.socket) -> int | None:
    """Milliseconds since bytes were last sent or received; 0 if received bytes are unread.

    None if the kernel does not report it, or the connection is dead.
    """
    try:
        if _INT.unpack(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(_INT.size)))[0]:
            return 0
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_AT + _LAST_DATA.size)
        sent_ms, received_ms = _LAST_DATA.unpack_from(info, _LAST_DATA_AT)
        return int(min(sent_ms, received_ms))
    except (OSError, struct.error):
        return None


def kernel_counts() -> bool:
    """Whether `passed_bytes` works on this kernel, tested on a local connection (some emulate Linux)."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), timeout=1.0) as client,
            listener.accept()[0] as accepted,
        ):
            client.sendall(b"query")
            accepted.settimeout(1.0)
            seen = [passed_bytes(accepted), len(accepted.recv(3)), passed_bytes(accepted)]
            accepted.sendall(b"answered")
            return [*seen, passed_bytes(accepted)] == [0, 3, 3, 3 + len(b"answered")]
    except OSError:
        return False
