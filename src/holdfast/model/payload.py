"""Arguments, results and checkpoints as JSON. Values that would not read back unchanged are refused before they reach a
database."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

MAX_DEPTH = 64

# An escaped NUL: \u0000 after an even number of backslashes. PostgreSQL stores it, and then fails to read it.
_NUL = rb"(?<!\\)(?:\\\\)*\\u0000"

_BYTES = "$bytes"  # the only key of an object that stands for bytes
_MARKED = f'{{"{_BYTES}":'.encode()


class Unfit(ValueError):
    """The value can't be stored as JSON. The message says why, without repeating the value."""


# Pydantic models are recognised by what they can do: Pydantic is imported by those who use it, never by us.


def is_model(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__") and hasattr(kind, "model_validate_json")


def _written(value: Any) -> msgspec.Raw:
    """By the names of its fields, with nothing that is computed from others: what is read back is the same model."""
    if not is_model(type(value)):
        raise TypeError(f"an object of type `{type(value).__qualname__}` has no JSON form")
    return msgspec.Raw(value.model_dump_json(round_trip=True, by_alias=False).encode())


def _read(kind: Any, value: Any) -> Any:
    if kind is object:
        return value
    try:  # from JSON: only there a strict model takes a date as text
        return kind.model_validate_json(msgspec.json.encode(value), by_alias=True, by_name=True)
    except Exception as error:  # noqa: BLE001 - a model's validators may raise anything
        raise ValueError(_complaint(error)) from None


def _complaint(error: Exception) -> str:
    """The first thing a model finds wrong, in one line and without the value."""
    if not hasattr(error, "errors"):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"`{where}`: {first['msg']}" if where else str(first["msg"])


_encoder = msgspec.json.Encoder(enc_hook=_written)


def decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    """Reads JSON as this hint says. Raises TypeError if no JSON can be read so."""
    return msgspec.json.Decoder(hint, dec_hook=_read)


def encode(value: Any, *, limit: int) -> bytes:
    """JSON text that reads back as it was written, or Unfit."""
    try:
        data = _encoder.encode(value)
        _check(value, data, limit)
    except Unfit:
        raise
    except RecursionError:
        raise Unfit("it is nested too deeply, or contains itself") from None
    except UnicodeEncodeError:
        raise Unfit("it contains half of a surrogate pair, which is not a character") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfit(f"it is not JSON: {error}") from None
    except Exception as error:  # noqa: BLE001 - an object's own hooks may raise anything
        raise Unfit(f"it is not JSON: {type(error).__name__}: {error}") from None
    return data


def checked(data: bytes, *, limit: int) -> bytes:
    """Returns JSON text from elsewhere if it can be stored and read back; raises Unfit if not."""
    _check(None, data, limit)
    try:
        msgspec.json.decode(data)
    except RecursionError:
        raise Unfit("it is nested too deeply") from None
    except ValueError as error:
        raise Unfit(f"it is not JSON: {error}") from None
    return data


def foreign(value: Any) -> str:
    """What of a value JSON hands over as something else, in words."""
    found: list[Any] = [value]
    for one in found:
        if isinstance(one, dict):
            if not all(isinstance(key, str) for key in one):
                return "keys that are not text would arrive as text"
            found += one.values()
        elif isinstance(one, list):
            found += one
        elif not isinstance(one, str | int | float | None):
            return f"a `{type(one).__qualname__}` would arrive as something else"
    return "it would not arrive as it was"


def encode_checkpoint(state: Any, *, limit: int) -> bytes:
    """JSON text, or Unfit. Bytes are stored as Base64 under a special key, so that they are read back as bytes."""
    if isinstance(state, bytes | bytearray | memoryview):
        return encode({_BYTES: state}, limit=limit)
    data = encode(state, limit=limit)
    if data.startswith(_MARKED):
        raise Unfit(f'its first key is "{_BYTES}", which marks a checkpoint that was given as bytes')
    if msgspec.json.decode(data) != state:
        raise Unfit(f"{foreign(state)}; save plain JSON values")
    return data


def decode_checkpoint(data: bytes) -> Any:
    if data.startswith(_MARKED):
        return msgspec.json.decode(data, type=dict[str, bytes])[_BYTES]
    return msgspec.json.decode(data)


def _check(value: Any, data: bytes, limit: int) -> None:
    if len(data) > limit:
        taken = f"it takes {len(data):,} bytes as JSON, and {limit:,} are allowed"
        raise Unfit(f"{taken}; keep it elsewhere and pass a reference")
    # By `find`: `in` would first try the needle as a number, which takes three times as long.
    if data.find(b"\\u0000") >= 0 and re.search(_NUL, data):
        raise Unfit("it contains a NUL character, which PostgreSQL can't store")
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth(data) > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH} levels")
    if data.find(b"null") >= 0 and _has_non_finite(value):
        raise Unfit("it contains a number that is not finite (NaN or infinity), which JSON can't express")


def _has_non_finite(value: Any) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(_has_non_finite(v) for v in value.values())
        case list() | tuple() | set() | frozenset():
            return any(_has_non_finite(v) for v in value)
        case msgspec.Struct():
            return any(_has_non_finite(getattr(value, name)) for name in value.__struct_fields__)
        case _ if hasattr(type(value), "__dataclass_fields__"):
            return any(_has_non_finite(getattr(value, name)) for name in type(value).__dataclass_fields__)
        case _ if hasattr(type(value), "__attrs_attrs__"):
            return any(_has_non_finite(getattr(value, field.name)) for field in type(value).__attrs_attrs__)
    return False


_STRING = rb'"(?:[^"\\]|\\.)*"'


def depth(data: bytes) -> int:
    """How deeply JSON text is nested."""
    level = deepest = 0
    for char in re.sub(_STRING, b"", data):
        if char in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif char in b"]}":
            level -= 1
    return deepest
