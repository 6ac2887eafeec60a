"""Comparisons and operations of transactions: `transactions.value("/key") == "x"`, `transactions.put(...)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from leasehold.contrib.etcd3 import etcdrpc
from leasehold.contrib.etcd3.utils import lease_to_id, to_bytes
from leasehold.mvcc import model

_OPERATORS = {
    model.CompareResult.EQUAL: "==",
    model.CompareResult.NOT_EQUAL: "!=",
    model.CompareResult.LESS: "<",
    model.CompareResult.GREATER: ">",
}


class BaseCompare:
    """A comparison of one attribute of a key, or of all keys up to `range_end`."""

    target: model.CompareTarget

    def __init__(self, key: bytes | str, range_end: bytes | str | None = None) -> None:
        self.key = key
        self.range_end = range_end
        self.value: Any = None
        self.op: model.CompareResult | None = None

    def _set(self, op: model.CompareResult, value: object) -> BaseCompare:
        self.op, self.value = op, value
        return self

    def __eq__(self, other: object) -> Any:
        return self._set(model.CompareResult.EQUAL, other)

    def __ne__(self, other: object) -> Any:
        return self._set(model.CompareResult.NOT_EQUAL, other)

    def __lt__(self, other: object) -> BaseCompare:
        return self._set(model.CompareResult.LESS, other)

    def __gt__(self, other: object) -> BaseCompare:
        return self._set(model.CompareResult.GREATER, other)

    __hash__ = None  # type: ignore[assignment] # `==` builds a comparison

    def __repr__(self) -> str:
        keys = self.key if self.range_end is None else f"[{self.key!r}, {self.range_end!r})"
        return f"{type(self)}: {keys!r} {_OPERATORS.get(self.op) if self.op is not None else None} {self.value!r}"

    def build(self) -> model.Compare:
        """The comparison for `leasehold.connect`."""
        if self.op is None:
            raise ValueError("op must be one of =, !=, < or >")
        is_value = self.target is model.CompareTarget.VALUE
        operand = to_bytes(self.value) if is_value else int(self.value)
        end = b"" if self.range_end is None else to_bytes(self.range_end)
        return model.Compare(to_bytes(self.key), self.target, self.op, operand, end)

    def build_message(self) -> etcdrpc.Compare:
        """The comparison as a message of etcd's API."""
        built = self.build()
        field = ("version", "create_revision", "mod_revision", "value")[self.target]
        fields: Any = {"result": int(built.result), "target": int(built.target), field: built.operand}
        return etcdrpc.Compare(key=built.key, range_end=built.range_end, **fields)


class Value(BaseCompare):
    """The value of a key."""

    target = model.CompareTarget.VALUE


class Version(BaseCompare):
    """How often a key was written since its creation."""

    target = model.CompareTarget.VERSION


class Create(BaseCompare):
    """The revision at which a key was created; 0 if it does not exist."""

    target = model.CompareTarget.CREATE


class Mod(BaseCompare):
    """The revision at which a key was last written."""

    target = model.CompareTarget.MOD


class Put:
    """Write a key."""

    def __init__(self, key: bytes | str, value: bytes | str, lease: object = None, prev_kv: bool = False) -> None:
        self.key = key
        self.value = value
        self.lease = lease
        self.prev_kv = prev_kv

    def build(self) -> model.Put:
        return model.Put(to_bytes(self.key), to_bytes(self.value), lease_to_id(self.lease), self.prev_kv)


class Get:
    """Read a key, or the range up to `range_end`."""

    def __init__(self, key: bytes | str, range_end: bytes | str | None = None) -> None:
        self.key = key
        self.range_end = range_end

    def build(self) -> model.Range:
        return model.Range(to_bytes(self.key), _end(self.range_end))


class Delete:
    """Delete a key, or the range up to `range_end`."""

    def __init__(self, key: bytes | str, range_end: bytes | str | None = None, prev_kv: bool = False) -> None:
        self.key = key
        self.range_end = range_end
        self.prev_kv = prev_kv

    def build(self) -> model.DeleteRange:
        return model.DeleteRange(to_bytes(self.key), _end(self.range_end), self.prev_kv)


class Txn:
    """A transaction within a transaction."""

    def __init__(
        self,
        compare: Sequence[BaseCompare],
        success: Iterable[Operation] | None = None,
        failure: Iterable[Operation] | None = None,
    ) -> None:
        self.compare = compare
        self.success = success
        self.failure = failure

    def build(self) -> model.Txn:
        return model.Txn(
            tuple(each.build() for each in self.compare), operations(self.success), operations(self.failure)
        )


Operation = Put | Get | Delete | Txn


def operations(given: Iterable[Operation] | None) -> tuple[model.Op, ...]:
    """The operations for `leasehold.connect`."""
    built = []
    for operation in given or ():
        if not isinstance(operation, Put | Get | Delete | Txn):
            raise Exception(f"Unknown request class {type(operation)}")  # the class that python-etcd3 raises
        built.append(operation.build())
    return tuple(built)


def _end(range_end: bytes | str | None) -> bytes:
    return b"" if range_end is None else to_bytes(range_end)


class ResponseOp:
    """The result of a put, a deletion or an inner transaction, under the name that etcd's API gives it."""

    def __init__(self, result: model.PutResult | model.DeleteResult | model.TxnResult) -> None:
        if isinstance(result, model.PutResult):
            self.response_put = result
        elif isinstance(result, model.DeleteResult):
            self.response_delete_range = result
        else:
            self.response_txn = result


class Transactions:
    """The names under which a client offers all of these."""

    def __init__(self) -> None:
        self.value = Value
        self.version = Version
        self.create = Create
        self.mod = Mod
        self.put = Put
        self.get = Get
        self.delete = Delete
        self.txn = Txn
