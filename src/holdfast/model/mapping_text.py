"""A mapping as people write it down: for the settings file, and as Python."""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

import msgspec

from holdfast.model.mapping import Mapping, plain_name


def as_toml(mapping: Mapping) -> str:
    """A section of holdfast.toml. (In pyproject.toml it begins with `tool.holdfast.`.)"""
    said = _said(mapping)
    name = mapping.name
    if mapping.table != name:
        said = {"table": mapping.table, **said}
    if plain_name(name) == name:
        said.pop("name", None)
    nested = {key: value for key, value in said.items() if isinstance(value, dict)}
    lines = [f"[{section(name)}]"]
    lines += [f"{key} = {_value(value)}" for key, value in said.items() if key not in nested]
    for key, values in nested.items():
        lines += ["", f"[{section(name)}.{key}]"]
        lines += [f"{_key(inner)} = {_value(value)}" for inner, value in values.items()]
    return "\n".join(lines) + "\n"


def section(name: str) -> str:
    return f"adopt.{_key(name)}"


def as_python(mapping: Mapping) -> str:
    """The same as a call."""
    said = _said(mapping)
    if mapping.name == plain_name(mapping.table):
        said.pop("name", None)
    lines = [f"{_identifier(mapping.name)} = hf.adopt(", f"    {_literal(mapping.table)},"]
    lines += [f"    {key}={_literal(value)}," for key, value in said.items()]
    return "\n".join([*lines, ")"]) + "\n"


def _said(mapping: Mapping) -> dict[str, Any]:
    """What differs from the defaults, without the table's name."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Mapping)}
    said: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(mapping).items() if value != defaults[name]
    }
    del said["table"]
    if mapping.queue == mapping.name:
        said.pop("queue", None)
    if said.get("counts"):
        said["counts"] = {key: value for key, value in said["counts"].items() if value is not None}
    return said


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(value: Any) -> str:
    """As our formatter writes it: with double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, str) and value.isprintable():
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _identifier(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    taken = keyword.iskeyword(plain) or keyword.issoftkeyword(plain) or plain == "hf"
    return plain if plain.isidentifier() and not taken else f"table_{plain}".rstrip("_")
