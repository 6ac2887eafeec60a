"""Protobuf messages as JSON, in the mapping of etcd's gateway.

Bytes are base64, 64-bit numbers are strings, enumerations have their names, defaults are omitted, and fields have the
names of the `.proto` file. A request may also use lowerCamelCase, numbers for 64-bit fields and for enumerations.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leasehold.base.decoding import UNDECODABLE

Message = Any

_LONG = (
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
)
_DEPTH_MAX = 100  # nested objects of a request, as in protobuf
_TOKEN = re.compile(rb'["{}\[\]]')
_STRING_TOKEN = re.compile(rb'["\\]')
_BARE_END = re.compile(rb'[\s{\["]')
_SPACE = b" \t\r\n"


class BadJson(ValueError):
    """A request that is not the JSON of its message."""


def to_json(message: Message) -> dict[str, Any]:
    """The message for `msgspec.json.encode`."""
    return {field.name: _value_out(field, value) for field, value in message.ListFields()}


def _value_out(field: FieldDescriptor, value: Any) -> Any:
    if field.is_repeated:
        return [_one_out(field, one) for one in value]
    return _one_out(field, value)


def _one_out(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_json(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b64encode(value).decode()
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return str(value) if field.type in _LONG else value


def from_json(kind: Any, text: bytes) -> Message:
    """A message of `kind` from one JSON value. Raises `BadJson`."""
    try:
        value = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise BadJson(str(error)) from None
    message = kind()
    if value is not None:
        _fill(message, value, _DEPTH_MAX)
    return message


def _fill(message: Message, value: Any, depth: int) -> None:
    descriptor: Descriptor = message.DESCRIPTOR
    if not isinstance(value, dict):
        raise BadJson(f"json: cannot unmarshal {_kind_of(value)} into Go value of type map[string]json.RawMessage")
    if not depth:
        raise BadJson("exceeded maximum recursion depth")
    names = descriptor.fields_by_name
    camel_names = descriptor.fields_by_camelcase_name
    for name, part in value.items():
        field = names.get(name) or camel_names.get(name)
        if field is None or part is None:
            continue  # an unknown field is ignored, as in etcd
        if field.is_repeated:
            if not isinstance(part, list):
                raise BadJson(f"field {name}: a list is expected, not {_kind_of(part)}")
            _fill_list(getattr(message, field.name), field, part, depth)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, part, depth - 1)
        else:
            try:
                setattr(message, field.name, _scalar(field, part))
            except (ValueError, TypeError) as error:
                raise BadJson(f"field {name}: {error}") from None


def _fill_list(target: Any, field: FieldDescriptor, parts: list[Any], depth: int) -> None:
    for part in parts:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill(target.add(), {} if part is None else part, depth - 1)
        else:
            try:
                target.append(_scalar(field, part))
            except (ValueError, TypeError) as error:
                raise BadJson(f"field {field.name}: {error}") from None


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    """The value of a field that is not a message. Raises `ValueError` or `TypeError`."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        if not isinstance(value, str):
            raise BadJson(f"base64 is expected, not {_kind_of(value)}")
        try:
            return b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
        except binascii.Error:
            raise BadJson("illegal base64 data") from None
    if field.type == FieldDescriptor.TYPE_STRING:
        if not isinstance(value, str):
            raise BadJson(f"text is expected, not {_kind_of(value)}")
        return value
    if field.type == FieldDescriptor.TYPE_BOOL:
        if not isinstance(value, bool):
            raise BadJson(f"true or false is expected, not {_kind_of(value)}")
        return value
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise BadJson(f'unknown value "{value}" for enum {field.enum_type.full_name}')
        return known.number
    return _integer(value)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"-?(0|[1-9][0-9]{0,19})", value):
            raise BadJson(f'invalid number "{value[:40]}"')
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadJson(f"a whole number is expected, not {_kind_of(value)}")
    return value


def _kind_of(value: Any) -> str:
    return {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}.get(
        type(value), "null"
    )


class JsonValues:
    """Splits a byte stream into JSON values that follow one another. Every byte is scanned one time.

    A value that is not an object or a list ends at white space, or at the end of the stream.
    """

    __slots__ = ("_data", "_depth", "_escaped", "_in_string", "_place")

    def __init__(self) -> None:
        self._data = bytearray()
        self._place = 0  # scanned up to here
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def __len__(self) -> int:
        """The bytes of the value that is not complete yet."""
        return len(self._data)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes. Returns the values that are complete now."""
        self._data += data
        found: list[bytes] = []
        while (value := self._next()) is not None:
            found.append(value)
        return found

    def rest(self) -> bytes:
        """The bytes after the last complete value, at the end of the stream."""
        return bytes(self._data).strip()

    def _next(self) -> bytes | None:
        data = self._data
        if not self._depth and not self._in_string and self._place == 0:
            del data[: len(data) - len(data.lstrip(_SPACE))]
        if data and not self._depth and not self._in_string and data[0] not in b'{["':
            return self._bare()
        while self._place < len(data):
            if self._in_string:
                self._skip_string()
                if self._in_string:
                    return None
                if not self._depth:
                    return self._cut()
                continue
            match = _TOKEN.search(data, self._place)
            if match is None:
                self._place = len(data)
                return None
            self._place = match.end()
            token = match[0]
            if token == b'"':
                self._in_string = True
            elif token in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return self._cut()
        return None

    def _skip_string(self) -> None:
        """Scan to the end of the string, or of the data."""
        data = self._data
        while self._place < len(data):
            if self._escaped:
                self._escaped = False
                self._place += 1
                continue
            match = _STRING_TOKEN.search(data, self._place)
            if match is None:
                self._place = len(data)
                return
            self._place = match.end()
            if match[0] == b'"':
                self._in_string = False
                return
            self._escaped = True

    def _bare(self) -> bytes | None:
        """A number or a word: it ends at white space or where an object begins."""
        match = _BARE_END.search(self._data, max(self._place, 1))
        if match is None:
            self._place = len(self._data)
            return None
        self._place = match.start()
        return self._cut()

    def _cut(self) -> bytes:
        value = bytes(self._data[: self._place])
        del self._data[: self._place]
        self._place = self._depth = 0
        return value
