"""The keep-alive engine's connection: blocking calls, to one endpoint after the other."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence

import grpc

from leasehold.coord.url import ConnectOptions
from leasehold.etcd.auth import REQUIRE_LEADER
from leasehold.etcd.endpoints import STREAMS, UNARY
from leasehold.etcd.pb import rpc_pb2
from leasehold.etcd.transport.channel import Metadata
from leasehold.etcd.transport.tls import pem

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # Each of our channels is one connection of its own, so that a new channel is a new connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd resets connections that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
)


class RenewingConnection:
    """One channel at a time, made when it is needed. All but `close` belongs to the engine's thread."""

    def __init__(self, addresses: Sequence[str], options: ConnectOptions, *, secure: bool) -> None:
        self._addresses = addresses
        self._options = options
        self._credentials = channel_credentials(options) if secure else None
        self._number = 0
        self._channel: grpc.Channel | None = None
        self._call: grpc.Call | None = None
        self._token = ""
        self._closed = False

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def address(self) -> str:
        """The endpoint in use."""
        return self._addresses[self._number]

    def renew(self, lease_ids: Sequence[int], timeout_s: float) -> Iterator[rpc_pb2.LeaseKeepAliveResponse]:
        """Ask for all of them in one stream, and give the answers as they come. Raises `grpc.RpcError`."""
        metadata = self._metadata(timeout_s) + REQUIRE_LEADER
        path, request, response = STREAMS["LeaseKeepAlive"]
        stream = self._open().stream_stream(path, request.SerializeToString, response.FromString)
        questions = iter([rpc_pb2.LeaseKeepAliveRequest(ID=lease_id) for lease_id in lease_ids])
        answers = stream(questions, timeout=timeout_s, metadata=metadata)
        self._call = answers
        try:
            yield from answers
        finally:
            self._call = None

    def leave(self) -> None:
        """The endpoint does not answer: connect anew, to the next one if there is another."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        self._number = (self._number + 1) % len(self._addresses)

    def forget_token(self) -> None:
        self._token = ""

    def close(self) -> None:
        """End what is under way, and what is begun later; from any thread."""
        self._closed = True
        call, channel = self._call, self._channel
        if call is not None:
            call.cancel()
        if channel is not None:
            channel.close()

    def _open(self) -> grpc.Channel:
        if self._channel is None:
            if self._credentials is None:
                self._channel = grpc.insecure_channel(self.address, CHANNEL_OPTIONS)
            else:
                self._channel = grpc.secure_channel(self.address, self._credentials, CHANNEL_OPTIONS)
            if self._closed:  # while it was made: `close`, which did not see it, would wait for its calls
                self._channel.close()
        return self._channel

    def _metadata(self, timeout_s: float) -> Metadata:
        if not self._options.user:
            return ()
        if not self._token:
            path, request, response = UNARY["Authenticate"]
            ask = self._open().unary_unary(path, request.SerializeToString, response.FromString)
            answer = ask(request(name=self._options.user, password=self._options.password), timeout=timeout_s)
            self._token = answer.token
        return (("token", self._token),)


def channel_credentials(options: ConnectOptions) -> grpc.ChannelCredentials:
    """TLS from PEM bytes or files; without a `ca` the system's authorities count here, too, not those gRPC brings."""
    ca = pem("ca", options.ca if options.ca is not None else ssl.get_default_verify_paths().cafile)
    return grpc.ssl_channel_credentials(ca, pem("key", options.key), pem("cert", options.cert))
