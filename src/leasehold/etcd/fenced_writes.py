"""Fenced writes without a task, a future or protobuf objects: the commits of a journal.

The common case alone is handled here: connected, no token, the usual answer. A failed attempt goes on in
`Caller.after_failure`, with the same rules as every other call.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from leasehold.etcd import codec
from leasehold.etcd.endpoints import UNARY, Endpoint
from leasehold.etcd.fenced_txn import FencedTxnDecoder, FencedTxnEncoder
from leasehold.etcd.retry import Caller
from leasehold.etcd.transport.call import UnaryCall
from leasehold.etcd.transport.channel import parsed
from leasehold.etcd.transport.failures import RpcFailed
from leasehold.mvcc.model import OpResult, Txn, TxnResult

_PARSE = UNARY["Txn"][2].FromString


class FencedWrites:
    """`send` is `coord.api.Sends.send` for transactions of a fenced writer."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._encoder, self._decoder = FencedTxnEncoder(), FencedTxnDecoder()

    def send(
        self,
        txn: Txn,
        timeout_s: float,
        answered: Callable[[OpResult], None],
        unfinished: Callable[[Coroutine[Any, Any, OpResult]], None],
    ) -> UnaryCall | None:
        message = self._encoder.encode(txn)
        if message is None:
            return None

        def failed(endpoint: Endpoint, error: RpcFailed, end_s: float) -> None:
            unfinished(self._go_on(txn, endpoint, error, end_s))

        def received(endpoint: Endpoint, answer: bytes, end_s: float) -> None:
            result = self._decoder.decode(answer)
            if result is None:
                try:
                    result = self._decoder.learn(parsed(_PARSE, answer))
                except RpcFailed as error:  # unreadable: as if there were no answer
                    failed(endpoint, error, end_s)
                    return
            self._caller.saw(result.header.revision)
            answered(result)

        return self._caller.write("Txn", message, timeout_s, received, failed)

    async def _go_on(self, txn: Txn, endpoint: Endpoint, error: RpcFailed, end_s: float) -> TxnResult:
        request = codec.txn_request(txn)
        return codec.txn_result(await self._caller.after_failure("Txn", request, endpoint, error, end_s))
