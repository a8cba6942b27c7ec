"""Type hints: which can be kept as JSON and read back, and whether a value was read back as what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from holdfast.model.payload import decoder, foreign, is_model

ANNOTATE = "say in the type hint what it holds, or pass plain JSON values"
NO_KEYS = (inspect.TupleType, inspect.VarTupleType, inspect.BoolType, inspect.NoneType, inspect.UnionType)


def why_unfit(hint: Any) -> str | None:
    """Why values of this type can't be kept as JSON and read back; None: they can."""
    try:
        decoder(hint)
        parts = list(_parts(inspect.type_info(hint)))
    except TypeError as error:
        return str(error)
    return next((why for part in parts if (why := _why(part)) is not None), None)


def _why(info: inspect.Type) -> str | None:
    if isinstance(info, inspect.CustomType) and not is_model(info.cls) and info.cls is not object:
        return f"`{info.cls.__qualname__}` has no JSON form; use a dataclass, a Pydantic model, str, dict or the like"
    if isinstance(info, inspect.DictType) and isinstance(info.key_type, NO_KEYS):
        return "JSON has text as keys, so these keys would not read back as they were; use a list of pairs"
    if isinstance(info, inspect.DataclassType) and (private := [n for n in _fields(info.cls) if n.startswith("_")]):
        return f"the private field `{private[0]}` of `{info.cls.__qualname__}` would be left out; rename it"
    return None


def _fields(cls: Any) -> list[str]:
    attrs = getattr(cls, "__attrs_attrs__", None)
    return [*cls.__dataclass_fields__] if attrs is None else [field.name for field in attrs]


def _parts(info: inspect.Type) -> Iterator[inspect.Type]:
    """This type and those inside it, each once: a type may contain itself."""
    seen: set[int] = set()
    waiting: list[Any] = [info]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        elif isinstance(one, inspect.Type | inspect.Field) and id(one) not in seen:
            seen.add(id(one))
            waiting += [getattr(one, name) for name in one.__struct_fields__ if name != "default"]
            if isinstance(one, inspect.Type):
                yield one


# Where a hint leaves the type open, JSON decides what is read back: a list for a set, text for bytes. And a Pydantic
# model may be written with less than it holds. These places are compared, and only these: elsewhere the hint converts,
# as it does with a date that is given as text.


class Open:
    """The places of a hint that say `Any`, or name a Pydantic model."""

    def __init__(self, hint: Any) -> None:
        self._info = inspect.type_info(hint)
        self._any = any(isinstance(part, inspect.AnyType | inspect.CustomType) for part in _parts(self._info))

    def __bool__(self) -> bool:
        return self._any

    def lost(self, given: Any, read: Any) -> str | None:
        """What was not read back as it was given, in words."""
        return _lost(self._info, given, read)


def _lost(info: inspect.Type, given: Any, read: Any) -> str | None:
    pairs: Iterator[tuple[inspect.Type, Any, Any]] = iter(())
    match info:
        case inspect.AnyType():
            return None if given == read else f"{foreign(given)}; {ANNOTATE}"
        case inspect.CustomType():
            return None if not is_model(type(given)) or _same_model(given, read) else _changed(given, read)
        case inspect.UnionType():
            pairs = ((one, given, read) for one in info.types)
        case inspect.ListType() | inspect.VarTupleType() if isinstance(read, list | tuple):
            pairs = ((info.item_type, one, other) for one, other in zip(given, read, strict=False))
        case inspect.TupleType() if isinstance(read, tuple):
            pairs = zip(info.item_types, given, read, strict=False)
        case inspect.DictType() if isinstance(given, dict) and isinstance(read, dict):
            if isinstance(info.key_type, inspect.AnyType) and given.keys() != read.keys():
                return f"{foreign(given)}; {ANNOTATE}"
            values = zip(given.values(), read.values(), strict=False)
            pairs = ((info.value_type, one, other) for one, other in values)
        case inspect.TypedDictType() if isinstance(given, dict) and isinstance(read, dict):
            pairs = ((field.type, given[field.name], read[field.name]) for field in info.fields if field.name in read)
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() if type(given) is type(read):
            names = ((field.type, field.name) for field in info.fields)
            pairs = ((kind, getattr(given, name), getattr(read, name)) for kind, name in names)
    return next((lost for pair in pairs if (lost := _lost(*pair)) is not None), None)


def _same_model(given: Any, read: Any) -> bool:
    return type(given) is type(read) and bool(given.model_dump(round_trip=True) == read.model_dump(round_trip=True))


def _changed(given: Any, read: Any) -> str:
    name = type(given).__qualname__
    if type(read) is not type(given):
        return f"a `{name}` would arrive as a `{type(read).__qualname__}`; annotate the parameter with `{name}`"
    before, after = given.model_dump(round_trip=True), read.model_dump(round_trip=True)
    fields = ", ".join(f"`{field}`" for field in before if before[field] != after.get(field))
    return f"a `{name}` does not read back from its own JSON as it was: see its {fields}"
