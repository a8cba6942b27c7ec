"""A handler's signature: arguments are checked against it when they are enqueued, and converted by its type hints when
the job runs."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import BadArguments, BadSettings, HoldfastError
from holdfast.model.payload import Unfit, decoder, encode
from holdfast.redact import MARKS, SECRET, hiding, is_secret_name
from holdfast.tasks.context import JobContext
from holdfast.tasks.hints import Open, why_unfit
from holdfast.tasks.options import ELSEWHERE, OPTIONS
from holdfast.tasks.resources import Use, uses_of

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, NotImplementedError, RecursionError)


class UnfitArguments(Exception):
    """Stored arguments don't fit the handler: it changed since they were enqueued, or other code wrote them."""


class Signature:
    """The arguments of a handler, as a type that JSON is checked against."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task = task
        try:
            signature = inspect.signature(function)
        except ValueError as error:  # some builtin functions have none
            raise BadSettings(f"task {task}: its parameters can't be told: {error}", number="HF1111") from None
        hints = _hints(task, function)
        parameters = list(signature.parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if self.takes_context:
            parameters = parameters[1:]
        self.uses = uses_of(f"task {task}", function)
        parameters = [parameter for parameter in parameters if not isinstance(parameter.default, Use)]
        _check_parameters(task, parameters, hints)
        self._signature = signature.replace(parameters=parameters)
        self._names = [parameter.name for parameter in parameters]
        self.required = [p.name for p in parameters if p.default is p.empty]
        self.hints = {name: hints.get(name, Any) for name in self._names}
        self._marks = [name for name in self._names if _is_secret(hints.get(name))]
        self.secrets = frozenset(self._marks) | {name for name in self._names if is_secret_name(name)}
        self._positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        self._most_positional = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
        self._keywords = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
        # No defaults and nothing to pass by name: the fast path.
        self._all_given = not self._marks and all(
            p.default is p.empty and p.kind is not p.KEYWORD_ONLY for p in parameters
        )
        self._open = [(name, places) for name in self._names if (places := Open(self.hints[name]))]
        fields = [_field(p, hints) for p in parameters]
        if self._marks:
            fields.append(("holdfast_marks", list[str] | UnsetType, UNSET))
        named = {"holdfast_marks": MARKS} if self._marks else None
        self._arguments = msgspec.defstruct(
            "Arguments", fields, forbid_unknown_fields=True, kw_only=not self._all_given, rename=named
        )
        self._decoder = decoder(self._arguments)
        returns = hints.get("return", Any)
        # A handler that returns nothing may still record a result on its own transaction.
        self.returns = Any if returns in (NoneType, typing.NoReturn, typing.Never) else returns
        if why := why_unfit(self.returns):
            raise BadSettings(f"task {task}: what it returns can't be kept as JSON: {why}", number="HF1111")
        self._result = decoder(self.returns)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int) -> bytes:
        """The arguments as JSON. Raises BadArguments, naming the one that is wrong."""
        if self._all_given and not kwargs and len(args) == len(self._names):
            given: Any = self._arguments(*args)
        else:
            given = self._by_name(args, kwargs)
            if self._marks:
                given[MARKS] = self._marks
        try:
            data = encode(given, limit=limit)
        except Unfit as unfit:
            raise BadArguments(self._blame(given, limit) or f"{self._task}: the arguments: {unfit}") from None
        try:
            read = self._decoder.decode(data)
        except UNREADABLE as error:
            hide = hiding(data, self.secrets, "")
            raise BadArguments(f"{self._task}: {hide(_message(error))}") from None
        if self._open:
            self._refuse_loss(given, read)
        return data

    def _refuse_loss(self, given: Any, read: Any) -> None:
        """Raises BadArguments, naming the argument that JSON would hand over as something else."""
        for name, places in self._open:
            before = given.get(name, UNSET) if isinstance(given, dict) else getattr(given, name)
            after = getattr(read, name)
            if before != after and (lost := places.lost(before, after)) is not None:
                raise BadArguments(f"{self._task}: argument `{name}`: {lost}")

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the signature."""
        given = dict(zip(self._names[: self._most_positional], args, strict=False))
        given.update((name, kwargs[name]) for name in self._keywords if name in kwargs)
        if len(given) == len(args) + len(kwargs) and all(name in given for name in self.required):
            return given
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            unknown = [name for name in kwargs if name not in self._keywords]
            options = [option for name in unknown if (option := ELSEWHERE.get(name, name)) in OPTIONS]
            hint = f"; {options[0]} is an option: {self._task}.using({options[0]}=…).enqueue(…)" if options else ""
            raise BadArguments(f"{self._task}: {error} (it takes {self._signature}){hint}") from None

    def partial(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Some of the arguments, by name."""
        try:
            return self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(f"{self._task}: {error} (it takes {self._signature})") from None

    @property
    def defaults(self) -> dict[str, Any]:
        return {p.name: p.default for p in self._signature.parameters.values() if p.default is not p.empty}

    def _blame(self, given: Any, limit: int) -> str | None:
        for name, value in (given if isinstance(given, dict) else msgspec.structs.asdict(given)).items():
            try:
                encode(value, limit=limit)
            except Unfit as unfit:
                return f"{self._task}: argument `{name}`: {unfit}"
        return None

    def caller(self, function: Callable[..., Any]) -> Callable[[JobContext, bytes], Any]:
        """Returns what calls the function with stored arguments. Made once, so that nothing about the signature is
        worked out for each job."""
        if not self._all_given:
            return partial(self._call, function)
        decode, values_of, takes_context = self._decoder.decode, msgspec.structs.astuple, self.takes_context

        def call(context: JobContext, args: bytes) -> Any:
            try:
                given = decode(args)
            except UNREADABLE as error:
                raise self._unfit(args, error) from None
            return function(context, *values_of(given)) if takes_context else function(*values_of(given))

        return call

    def _call(self, function: Callable[..., Any], context: JobContext, args: bytes) -> Any:
        try:
            decoded = self._decoder.decode(args)
        except UNREADABLE as error:
            raise self._unfit(args, error) from None
        values = {name: value for name in self._names if (value := getattr(decoded, name)) is not UNSET}
        first = [values.pop(name) for name in self._positional_only if name in values]
        if self.takes_context:
            return function(context, *first, **values)
        return function(*first, **values)

    def _unfit(self, args: bytes, error: Exception) -> UnfitArguments:
        stored = ""
        with suppress(ValueError, RecursionError):  # it is not an object
            names = [name for name in msgspec.json.decode(args, type=dict[str, msgspec.Raw]) if name != MARKS]
            stored = f"the job was stored with ({', '.join(names)}), and "
        return UnfitArguments(f"{self._task}: {_message(error)}; {stored}this handler takes {self._signature}")

    def encode_result(self, value: Any, *, limit: int) -> bytes:
        """What the handler returned, as JSON. Raises Unfit if it can't be kept, or is not what the return hint says:
        whoever asks for the result could not read it."""
        data = encode(value, limit=limit)
        if self.returns is not Any and type(value) is not self.returns:
            try:
                self._result.decode(data)
            except UNREADABLE as error:
                raise Unfit(f"it is not what the return hint says: {error}") from None
        return data

    def result(self, data: bytes | None) -> Any:
        """A stored result, read by the handler's return hint."""
        try:
            return None if data is None else self._result.decode(data)
        except UNREADABLE as error:
            raise HoldfastError(
                f"the result of {self._task} is not what its return hint says: {error}", number="HF1309"
            ) from None


def _hints(task: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadSettings(f"task {task}: a type hint can't be resolved: {error}", number="HF1111") from None


def _check_parameters(task: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> None:
    """Refuse what could only fail when it is enqueued, or when it runs."""
    for parameter in parameters:
        name, hint = parameter.name, hints.get(parameter.name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            why = f"{parameter} takes any arguments, so they can't be checked; name them one by one"
        elif name in ("self", "cls") and hint is None and parameter is parameters[0]:
            why = "it is a method, and a worker has no object to call it on; declare a function outside of the class"
        elif _is_context(parameter, hints):
            why = f"the context must be its first parameter; move `{name}` there"
        elif unfit := why_unfit(Any if hint is None else hint):
            why = f"parameter `{name}` can't be kept as JSON: {unfit}"
        else:
            continue
        raise BadSettings(f"task {task}: {why}", number="HF1111")


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    return hint is JobContext or (hint is None and parameter.name == "ctx")


def _is_secret(hint: Any) -> bool:
    """Is it, or a part of it, marked as Secret?"""
    return SECRET in getattr(hint, "__metadata__", ()) or any(_is_secret(part) for part in typing.get_args(hint))


def _field(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    return (parameter.name, hint | UnsetType if hint is not Any else Any, UNSET)


def _message(error: Exception) -> str:
    # "Expected `int`, got `str` - at `$.n`", and for the keys of a mapping "… - at `key in $.n`"
    said, _, path = str(error).partition(" - at `")
    return f"argument `{path.rstrip('`').replace('$.', '')}`: {said}" if path else said
