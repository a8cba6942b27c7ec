"""Resources: what handlers need and a worker opens once, such as a connection pool or a browser. They are opened before
the worker takes its first job, and closed after its last one, in reverse order.

A resource is a function: what it returns is the resource. A generator yields it once, and the code after the `yield`
closes it. Asynchronous resources live on the worker's event loop, each in a task of its own, so that it is closed in
the task that opened it. The others are opened on the thread the worker runs on, and shared by all of its threads."""

from __future__ import annotations

import inspect
import time
import typing
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T = TypeVar("T")

SHARE = 2  # an asynchronous resource that does not close takes one part in so many of the time left


class Resource(Generic[T]):
    """A declared resource: `pool: Pool = open_pool.injected` in a handler's signature asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", "") or repr(function)
        if inspect.isgeneratorfunction(inspect.unwrap(function)) and not inspect.isgeneratorfunction(function):
            raise BadSettings(
                f"resource {self.name}: leave @contextmanager out, @hf.resource takes the generator itself"
            )
        if inspect.isasyncgenfunction(inspect.unwrap(function)) and not inspect.isasyncgenfunction(function):
            raise BadSettings(
                f"resource {self.name}: leave @asynccontextmanager out, @hf.resource takes the generator itself"
            )
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.gives = _given_type(self.name, function)
        self.uses = uses_of(f"resource {self.name}", function)
        others = [name for name in inspect.signature(function).parameters if name not in self.uses]
        if others:
            raise BadSettings(
                f"resource {self.name}: nobody would pass {', '.join(others)}; a resource may only take other "
                "resources, as in `other: Other = open_other.injected`"
            )

    @property
    def injected(self) -> T:
        """As the default of a handler's parameter: a worker passes the opened resource. Until then it is only a marker
        in the signature, whatever its type says."""
        return cast(T, Use(self))

    def opened(self, values: dict[str, Any]) -> AbstractContextManager[T]:
        if inspect.isgeneratorfunction(self.function):
            return cast("AbstractContextManager[T]", contextmanager(self.function)(**values))
        return _plain(self.function, values)

    def aopened(self, values: dict[str, Any]) -> AbstractAsyncContextManager[T]:
        if inspect.isasyncgenfunction(self.function):
            return cast("AbstractAsyncContextManager[T]", asynccontextmanager(self.function)(**values))
        return _aplain(self.function, values)

    def __repr__(self) -> str:
        return f"<Resource {self.name}>"


class Use:
    """Stands for a resource in a signature: the one named, or the one whose type the parameter is annotated with."""

    def __init__(self, resource: Resource[Any] | None) -> None:
        self.resource = resource
        self.hint: Any = None

    def __repr__(self) -> str:
        return f"{self.resource.name if self.resource else 'hf'}.injected"


@contextmanager
def _plain(function: Callable[..., T], values: dict[str, Any]) -> Iterator[T]:
    yield function(**values)


@asynccontextmanager
async def _aplain(function: Callable[..., Any], values: dict[str, Any]) -> AsyncIterator[Any]:
    yield await function(**values)


def uses_of(where: str, function: Callable[..., Any]) -> dict[str, Use]:
    """The parameters a resource is to be injected into."""
    found = {p.name: p for p in inspect.signature(function).parameters.values() if isinstance(p.default, Use)}
    for parameter in found.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise BadSettings(f"{where}: {parameter.name} is injected by its name, so it can't be positional-only")
    uses: dict[str, Use] = {name: parameter.default for name, parameter in found.items()}
    if any(use.resource is None for use in uses.values()):
        hints = _hints(where, function)
        for name, use in uses.items():
            use.hint = hints.get(name)
            if use.resource is None and use.hint is None:
                raise BadSettings(f"{where}: {name} = hf.injected goes by the annotation, and {name} has none")
    return uses


def _given_type(name: str, function: Callable[..., Any]) -> Any:
    hint = _hints(f"resource {name}", function).get("return")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return (typing.get_args(hint) or (None,))[0]
    return hint


def _hints(where: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise BadSettings(f"{where}: a type hint can't be resolved: {error}") from None


def resolve(where: str, use: Use, known: Iterable[Resource[Any]], *, is_async: bool) -> Resource[Any]:
    """Find the resource. Refuses what is ambiguous, or can't be used there."""
    resource = use.resource
    if resource is None:
        fitting = [one for one in known if one.gives is not None and one.gives == use.hint]
        if len(fitting) != 1:
            shown = getattr(use.hint, "__qualname__", use.hint)
            found = "no resource gives it" if not fitting else f"{' and '.join(r.name for r in fitting)} both give it"
            raise BadSettings(
                f"{where}: hf.injected looks for a {shown}, and {found}; name one, as in open_it.injected"
            )
        [resource] = fitting
    if resource.is_async and not is_async:
        raise BadSettings(
            f"{where} is synchronous and uses {resource.name}, which lives on the event loop: make it `async def`, or "
            "give it a synchronous resource"
        )
    return resource


class OpenResources:
    """The resources of a running worker."""

    def __init__(self, known: Sequence[Resource[Any]]) -> None:
        self._known = known
        self._values: dict[Resource[Any], Any] = {}
        self._closers: list[tuple[Resource[Any], Callable[[float], None]]] = []
        self._opening: list[Resource[Any]] = []

    def plan(self, where: str, uses: dict[str, Use], *, is_async: bool) -> dict[str, Resource[Any]]:
        """Find these resources, and those that they use in turn. Refuses what can't work; opens nothing."""
        found = {name: resolve(where, use, self._known, is_async=is_async) for name, use in uses.items()}
        for resource in found.values():
            if resource in self._opening:
                raise BadSettings(f"resource {resource.name} uses itself, by way of {self._opening[-1].name}")
            self._opening.append(resource)
            self.plan(f"resource {resource.name}", resource.uses, is_async=resource.is_async)
            self._opening.pop()
        return found

    def values(
        self, where: str, uses: dict[str, Use], loop: asyncio.AbstractEventLoop | None, *, is_async: bool
    ) -> dict[str, Any]:
        """The open resources that a handler asks for; each is opened when it is first needed."""
        planned = self.plan(where, uses, is_async=is_async)
        return {name: self._value(resource, loop) for name, resource in planned.items()}

    def _value(self, resource: Resource[Any], loop: asyncio.AbstractEventLoop | None) -> Any:
        if resource not in self._values:
            values = self.values(f"resource {resource.name}", resource.uses, loop, is_async=resource.is_async)
            try:
                self._values[resource] = self._open(resource, values, loop)
            except Exception as error:
                raise HoldfastError(
                    f"the resource {resource.name} could not be opened, so this worker takes no jobs (they stay "
                    f"queued): {type(error).__name__}: {error}"
                ) from error
        return self._values[resource]

    def _open(self, resource: Resource[Any], values: dict[str, Any], loop: asyncio.AbstractEventLoop | None) -> Any:
        if not resource.is_async:
            context = resource.opened(values)
            value = context.__enter__()
            self._closers.append((resource, lambda end_by: _leave(context)))
            return value
        assert loop is not None, "its user is asynchronous, so there is a loop"
        keeper = _Keeper(resource.aopened(values), loop)
        value = keeper.open()
        self._closers.append((resource, keeper.close))
        return value

    def close(self, end_by: float) -> None:
        """In reverse order. A failure to close is reported, and keeps nothing from stopping."""
        while self._closers:
            resource, close = self._closers.pop()
            try:
                close(end_by)
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                events.emit("resource_stuck", resource=resource.name, error=f"{type(error).__name__}: {error}")
        self._values.clear()


def _leave(context: AbstractContextManager[Any]) -> None:
    context.__exit__(None, None, None)


class _Keeper:
    """Holds an asynchronous resource open, in a task of its own on the loop."""

    def __init__(self, context: AbstractAsyncContextManager[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def open(self) -> Any:
        return on_loop(self._start(), self._loop).result()

    async def _start(self) -> Any:
        from asyncio import Event

        self._closing = Event()
        ready = self._loop.create_future()
        self._task = self._loop.create_task(self._keep(ready))
        return await ready

    async def _keep(self, ready: asyncio.Future[Any]) -> None:
        try:
            value = await self._context.__aenter__()
        except BaseException as error:  # noqa: BLE001 - it is raised where the resource is asked for
            ready.set_exception(RuntimeError(f"stopped: {error!r}") if isinstance(error, StopIteration) else error)
            return
        ready.set_result(value)
        await self._closing.wait()
        await self._context.__aexit__(None, None, None)

    def close(self, end_by: float) -> None:
        on_loop(self._stop(), self._loop).result(max(0.0, end_by - time.monotonic()) / SHARE)

    async def _stop(self) -> None:
        self._closing.set()
        await self._task


def on_loop(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
    """Run this there. (asyncio is imported when it is needed: that takes as long as all of Holdfast.)"""
    from asyncio import run_coroutine_threadsafe

    return run_coroutine_threadsafe(coroutine, loop)
