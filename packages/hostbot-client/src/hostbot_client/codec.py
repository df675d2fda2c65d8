"""Messages as openpi's websocket protocol has them: msgpack, with arrays and numpy scalars as tagged maps.

An array is ``{b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": (...)}``; a numpy scalar is
``{b"__npgeneric__": True, b"data": value, b"dtype": "<f4"}``. Only numbers and booleans pass, in either
direction: no object, void, string or complex dtype, so that nothing in a message can be code.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np

MAX_BYTES = 64 * 2**20
MAX_ITEMS = 2**16
"""Of all lists and maps of a message together: what is long travels as one array, and only garbage has more."""
_MAX_LENGTH = 4096
_KINDS = "biuf"
_MAX_DIMENSIONS = 8


class BadMessage(ValueError):
    """A message that cannot be sent or must not be believed."""


def pack(message: Any) -> bytes:
    """A message as bytes; arrays and numpy scalars anywhere in it."""
    try:
        return bytes(msgpack.packb(message, default=_tag))
    except (TypeError, ValueError, OverflowError) as reason:
        raise BadMessage(f"this message cannot be sent: {reason}") from None


def unpack(data: bytes, max_bytes: int = MAX_BYTES) -> Any:
    """A message from bytes; arrays come back read-only, as views of ``data``."""
    if len(data) > max_bytes:
        raise BadMessage(f"a message of {len(data)} bytes is over the limit of {max_bytes}")
    count = _Count()
    try:
        return msgpack.unpackb(
            data,
            object_hook=count.map,
            list_hook=count.list,
            strict_map_key=False,
            max_array_len=_MAX_LENGTH,
            max_map_len=_MAX_LENGTH,
        )
    except BadMessage:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as reason:
        raise BadMessage(f"this is no message: {reason or type(reason).__name__}") from None


class _Count:
    """Ends a message of too many small pieces before it has cost seconds and gigabytes."""

    def __init__(self) -> None:
        self.items = 0

    def map(self, found: dict[Any, Any]) -> Any:
        self._add(len(found))
        return _untag(found)

    def list(self, found: list[Any]) -> list[Any]:
        self._add(len(found))
        return found

    def _add(self, items: int) -> None:
        self.items += items
        if self.items > MAX_ITEMS:
            raise BadMessage(f"a message has at most {MAX_ITEMS} items; send what is long as an array")


def _tag(value: Any) -> dict[bytes, Any]:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{type(value).__name__} is no number, string, list, map or array")
    _allowed(value.dtype)
    if isinstance(value, np.ndarray):
        return {
            b"__ndarray__": True,
            b"data": value.tobytes(),
            b"dtype": value.dtype.str,
            b"shape": value.shape,
        }
    return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}


def _untag(found: dict[Any, Any]) -> Any:
    if b"__ndarray__" in found:
        return _array(found)
    if b"__npgeneric__" in found:
        value = found.get(b"data")
        if not isinstance(value, (bool, int, float)):
            raise BadMessage(f"a numpy scalar must hold a number, not {type(value).__name__}")
        try:
            return _dtype(found).type(value)
        except OverflowError:
            raise BadMessage(f"{value} does not fit {_dtype(found)}") from None
    return found


def _array(found: dict[Any, Any]) -> np.ndarray:
    data, shape, dtype = found.get(b"data"), found.get(b"shape"), _dtype(found)
    if not isinstance(data, bytes) or not isinstance(shape, list):
        raise BadMessage("an array must have bytes as data and a list as shape")
    if len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise BadMessage(f"an array cannot have the shape {shape[:16]}")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise BadMessage(f"an array of shape {shape} and dtype {dtype} does not fit {len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _dtype(found: dict[Any, Any]) -> np.dtype[Any]:
    name = found.get(b"dtype")
    if not isinstance(name, str) or len(name) > 8:
        raise BadMessage("a dtype must be a short string such as '<f4'")
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        raise BadMessage(f"{name!r} is no dtype") from None
    return _allowed(dtype)


def _allowed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise BadMessage(f"dtype {dtype} is not allowed: only booleans, integers and floats are")
    return dtype
