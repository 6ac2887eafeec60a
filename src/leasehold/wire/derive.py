"""Derive wire types from Python annotations, for Leasehold's own functions.

int -> i64    float -> f64    bool    str, bytes -> string    list[T] -> vector    dict[K, V] -> map
T | None -> optional    another Struct -> struct    A | B (Structs) -> variant    tuple[A, B] -> struct
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

from msgspec import Struct

from leasehold.base.errors import InvalidArgument
from leasehold.wire.schema import BOOL, BYTES, F64, I64, TEXT, Map, Optional, Record, Tuple, Type, Variant, Vector

_SIMPLE: dict[Any, Type] = {int: I64, float: F64, bool: BOOL, str: TEXT, bytes: BYTES}


@cache
def wire_type(annotation: Any) -> Type:
    """The wire type of an annotation; raises `InvalidArgument` if there is none."""
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return _record(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return Vector(wire_type(arguments[0]))
    if origin is dict:
        return Map(wire_type(arguments[0]), wire_type(arguments[1]))
    if origin is tuple and Ellipsis not in arguments:
        return Tuple(tuple(wire_type(each) for each in arguments))
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    raise InvalidArgument(
        f"{annotation!r} has no type on the wire; use int, float, bool, str, bytes, list, dict, Struct"
    )


def _record(cls: type[Struct]) -> Record:
    hints = typing.get_type_hints(cls)
    return Record(cls, **{name: wire_type(hints[name]) for name in cls.__struct_fields__})


def _union(arguments: tuple[Any, ...]) -> Type:
    present = tuple(each for each in arguments if each is not type(None))
    inner = wire_type(present[0]) if len(present) == 1 else Variant(*(_record(each) for each in present))
    return Optional(inner) if len(present) < len(arguments) else inner
