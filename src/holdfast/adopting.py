"""A table of the user's as a queue, as programs see it: how it is mapped, its task, and its rows."""

from __future__ import annotations

import typing
from collections.abc import Callable, Coroutine, Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from msgspec import inspect

from holdfast import events
from holdfast.durations import Duration
from holdfast.errors import BadArguments, BadSettings, JobNotFound
from holdfast.job import Job, handle
from holdfast.model.filter import quoted
from holdfast.model.isolation import Limits
from holdfast.model.job import AfterFailure, Enqueued, Page
from holdfast.model.lifecycle import UNFINISHED
from holdfast.model.mapping import WHOLE, Counting, Mapping, mapping_of
from holdfast.model.mapping_text import section
from holdfast.model.retry import RetryLike
from holdfast.model.text import nearest
from holdfast.operations import jobs as list_jobs
from holdfast.settings import adopted_in_file
from holdfast.store.adopted import AS_NEW, SameKey
from holdfast.tasks.context import JobContext
from holdfast.tasks.decorator import TaskDecorator
from holdfast.tasks.manifest import DELAYS
from holdfast.tasks.offload import in_thread, twin
from holdfast.tasks.options import (
    TASK_OPTIONS,
    Isolation,
    TaskOptions,
    after_failure_of,
    key_of,
    no_such_options,
    reuse_of,
    seconds,
)
from holdfast.tasks.signature import Signature
from holdfast.tasks.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from holdfast.app import Holdfast

P = ParamSpec("P")
R = TypeVar("R")

OURS = ("worker", "started_at", "finished_at", "heartbeat_at", "claimed_at", "lease_until", "fence")  # columns
ROW = "row"  # the argument that a handler gets its row by


class AdoptArguments(TypedDict, total=False):
    """What `hf.adopt(table, …)` takes, for editors and type checkers: the fields of `model.mapping.Mapping`."""

    states: dict[str, str | list[str]]
    name: str
    queue: str
    id: str | None
    status: str
    payload: list[str] | None
    created_at: str | None
    run_at: str | None
    priority: str | int
    attempts: str | None
    counting: Counting
    max_attempts: str | int
    worker: str | None
    started_at: str | None
    finished_at: str | None
    heartbeat_at: str | None
    claimed_at: str | None
    lease_until: str | None
    lease: float
    renew: bool
    fence: str | None
    version: str | None
    updated_at: str | None
    error_code: str | None
    error_message: str | None
    results: dict[str, str]
    key: str | None
    token: str | None
    counts: dict[str, str] | None
    notify: bool


class AdoptedTaskOptions(TypedDict, total=False):
    """The options of `@audits.task(…)`. The others of a task are the mapping's, or the row's."""

    retry: RetryLike
    timeout: Duration | None
    progress_timeout: Duration | None
    isolation: Isolation | None
    limits: Limits | None
    env: Sequence[str]
    database: bool


OPTIONS = frozenset(AdoptedTaskOptions.__optional_keys__)
# Options of other tasks, and what says the same for an adopted table.
MAPPED = {"queue": "queue=…", "priority": "priority=…", "max_attempts": "max_attempts=…", "name": "name=…"}


def said_mapping(table: str, given: dict[str, Any], where: str) -> Mapping:
    """The mapping of this table, from the code at `where`, from the settings file, or from both if they say the
    same."""
    if not isinstance(table, str) or not table:
        raise BadSettings(f"adopt takes the name of a table, not {table!r:.80}", number="HF1160")
    in_code = mapping_of(table, given) if given else None
    mappings, file = adopted_in_file()
    name = in_code.name if in_code is not None else table
    found = next((key for key, one in mappings.items() if name == key or one.get("table") == table), None)
    if found is None:
        if in_code is not None:
            return in_code
        near = nearest(table, mappings)
        hint = f" (perhaps {near[0]!r})" if near else ""
        raise BadSettings(
            f"adopt({table!r}) says nothing of its columns, and {file or 'no settings file'} has no [{section(table)}]"
            f"{hint}: name at least states={{…}}; `holdfast adopt {table}` proposes a mapping",
            number="HF1160",
        )
    in_file = file_mapping(found, mappings[found])
    if in_code is not None and in_code != in_file:
        differing = [name for name in in_code.__struct_fields__ if getattr(in_code, name) != getattr(in_file, name)]
        raise BadSettings(
            f"which mapping of {found!r}? {where} and [{section(found)}] in {file} differ in {', '.join(differing)}: "
            f"remove one of them (hf.adopt({table!r}) takes that of the file)",
            number="HF1161",
        )
    return in_file


def file_mapping(name: str, given: dict[str, Any]) -> Mapping:
    """A mapping as a settings file has it under this name."""
    fields = {"name": name, **given}
    return mapping_of(fields.pop("table", name), fields)


class Adopted:
    """A table that is worked as a queue. Its rows are jobs, whoever inserts them."""

    def __init__(self, app: Holdfast, mapping: Mapping) -> None:
        self._app = app
        self.mapping = mapping
        self.name = mapping.name

    # -- its task ------------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[AdoptedTaskOptions]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare what works its rows: `@audits.task def analyse(ctx, row: Audit) -> Findings`. The annotation of `row`
        may be a dict, a dataclass, a model, with any of the columns."""
        if function is not None and not callable(function):
            raise BadSettings(
                f"@{self.name}.task takes options by name, as in task(timeout=…), not {function!r:.80}", number="HF1111"
            )
        decorator = TaskDecorator(self._declare, cast(TaskOptions, options))
        return decorator if function is None else decorator(function)

    def _declare(self, function: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
        where = f"@{self.name}.task"
        if mapped := sorted(options.keys() & (TASK_OPTIONS - OPTIONS)):
            said = MAPPED.get(mapped[0])
            instead = f"say it to hf.adopt(…, {said})" if said else "leave it out"
            raise BadSettings(
                f"{where}: {mapped[0]} is not for the rows of an adopted table; {instead}", number="HF1111"
            )
        if unknown := options.keys() - OPTIONS:
            raise BadSettings(f"{where}: {no_such_options(unknown, OPTIONS)}", number="HF1111")
        mapping = self.mapping
        signature = Signature(mapping.name, function)
        _check_row(where, signature)
        _check_results(where, mapping, signature.returns)
        given: TaskOptions = {
            **options, "name": mapping.name, "queue": mapping.queue, "timeout": self._timeout(where, options),
            # A column says it for each row: then as many as a runner announces delays for.
            "max_attempts": mapping.max_attempts if isinstance(mapping.max_attempts, int) else DELAYS + 1,
        }  # fmt: skip
        return self._app._declare(function, given, mapping)

    def _timeout(self, where: str, options: TaskOptions) -> Duration | None:
        """Where a lease is not renewed, an attempt must be over before the row is taken for abandoned: also one that
        has to be stopped, which takes the grace time."""
        given, lease = options.get("timeout"), self.mapping.lease
        if self.mapping.renew:
            return given
        if given is None:
            return max(lease / 2, min(lease - self._app.settings.grace, 0.95 * lease))
        if seconds(f"{where}: timeout", given) >= lease:
            raise BadSettings(
                f"{where}: its rows are taken for abandoned after {lease:g} s (lease=…, renew=False), so its timeout "
                "must be shorter than that",
                number="HF1111",
            )
        return given

    # -- the table -----------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Adopt the table, as `holdfast adopt` does: make the triggers that keep rows and jobs in step, and a job for
        each row that has work left. Safe to repeat."""
        self._app.store.adopted.install(self.mapping)

    ainstall = twin(install)

    def problems(self) -> list[str]:
        """What keeps the table from being worked as it is mapped, or will: that it is not adopted yet, say. None: it is
        adopted, and fits."""
        return [str(problem) for problem in self._app.store.adopted.check(self.mapping)]

    aproblems = twin(problems)

    # -- its rows ------------------------------------------------------------------------------------------------------

    def submit(
        self, values: dict[str, Any] | None = None, /, *, key: str | None = None,
        reuse: Duration | Literal["forever"] | None = None, after_failure: AfterFailure = "new", conn: Any = None,
        **columns: Any,
    ) -> Job[Any]:  # fmt: skip
        """Insert a row that waits, with these columns: `audits.submit(url="https://a.example")`. Names that are no
        words of Python go into a dict: `audits.submit({"page url": …})`. With a `key` (the mapping's column), a row
        with the same key that has work left is returned instead; so is one that succeeded within the time of `reuse`.
        `after_failure` says what one that failed or was cancelled means: "new", "retry" or "return". On an open
        transaction (`conn`) the row is there once that commits."""
        return self._app._submit_row(self, *self._asked(values, columns, key, reuse, after_failure), conn)

    async def asubmit(
        self, values: dict[str, Any] | None = None, /, *, key: str | None = None,
        reuse: Duration | Literal["forever"] | None = None, after_failure: AfterFailure = "new", conn: Any = None,
        **columns: Any,
    ) -> Job[Any]:  # fmt: skip
        """`submit` without blocking the event loop. `conn` may be asynchronous."""
        row, same = self._asked(values, columns, key, reuse, after_failure)
        if conn is None:
            return await in_thread(self._app, self._app._submit_row, self, row, same, None)
        self._app._refuse_in_transaction(conn)
        store = await in_thread(self._app, self._app._get_store)
        id, done = await store.adopted.asubmit_on(conn, self.mapping, row, same)
        return self._submitted(id, done, conn)

    def _submit(self, row: dict[str, Any], same: SameKey, conn: Any) -> Job[Any]:
        app = self._app
        store = app.store if conn is None else app._get_store()
        app._refuse_in_transaction(conn)
        id, done = store.adopted.submit(self.mapping, row, same, conn=conn)
        return self._submitted(id, done, conn)

    def _submitted(self, id: str, done: Enqueued, conn: Any) -> Job[Any]:
        if done.created and events.wanted("enqueued"):
            events.emit("enqueued", count=1, task=self.name, job=done.id, committed=conn is None)
        return Job(
            self._app, done.id, self.name, created=done.created, state=done.state, commits_later=conn is not None,
            row=(self.name, id),
        )  # fmt: skip

    def _asked(
        self, values: dict[str, Any] | None, columns: dict[str, Any], key: str | None, reuse: Any, after_failure: Any
    ) -> tuple[dict[str, Any], SameKey]:
        where = f"{self.name}.submit"
        row = {**(values or {}), **columns}
        same = SameKey(reuse_of(where, reuse), after_failure_of(where, after_failure))
        if key is not None:
            if self.mapping.key is None:
                raise BadArguments(f"{where}: the mapping names no column for a key: hf.adopt(…, key=…)")
            row[self.mapping.key] = key_of(f"{where}: key", key)
        elif same != AS_NEW and self.mapping.key not in row:
            raise BadArguments(f"{where}: reuse and after_failure are of use with key= only")
        ours = {self.mapping.status, *(self.mapping.columns[name] for name in OURS if name in self.mapping.columns)}
        if taken := sorted(ours & row.keys()):
            raise BadArguments(f"{where}: {taken[0]} is written by Holdfast; leave it out")
        return row, same

    def row(self, id: object, *, token: str | None = None) -> dict[str, Any]:
        """The row with this id: all of its columns as JSON has them, in the forms that handlers get. With `token`, only
        if that is what its token column says (`hf.adopt(…, token="job_token")`): whoever has it may see the row without
        a login. An unknown id and a wrong token raise the same JobNotFound."""
        if token is not None and self.mapping.token is None:
            raise BadArguments(f"{self.name}.row: the mapping names no column for a token: hf.adopt(…, token=…)")
        found = self._app.store.adopted.row(self.mapping, str(id))
        if token is not None:
            kept = None if found is None else found[self.mapping.token or ""]
            # As long as it takes to compare them, whatever they have in common, and whether there is a row or not.
            if not compare_digest(str(kept or "").encode(), token.encode()) or not kept:
                found = None
        if found is None:
            said = " with this token" if token is not None else ""
            raise JobNotFound(f"{self.name} has no row {str(id)[:80]}{said}")
        return found

    arow = twin(row)

    def job(self, row_id: object) -> Job[Any]:
        """The job of the row with this id."""
        store = self._app.store
        found = store.reads.of_row(self.name, str(row_id))
        if found is None:
            store.adopted.settle(self.name)  # somebody may have inserted it just now
            found = store.reads.of_row(self.name, str(row_id))
        if found is None:
            raise JobNotFound(
                f"row {row_id} of {self.name} has no job in {store.shown_url}: there is no such row, or its "
                f"{self.mapping.status} has none of the words for unfinished work "
                f"({', '.join(map(repr, self.mapping.words(*UNFINISHED)))})"
            )
        return handle(self._app, found)

    ajob = twin(job)

    def jobs(self, filter: str = "", *, before: str | None = None, limit: int = 50) -> Page[Job[Any]]:
        """The jobs of its rows that match a filter, newest first, as `hf.jobs` lists them."""
        if not isinstance(filter, str):
            raise BadArguments(f"jobs: a filter is a text, as in 'state:failed', not {filter!r:.80}")
        return list_jobs(self._app, f"{filter} source:{quoted(self.name)}", before=before, limit=limit)

    ajobs = twin(jobs)

    def __repr__(self) -> str:
        return f"<Adopted {self.name}: the table {self.mapping.table}>"


def _check_row(where: str, signature: Signature) -> None:
    if list(signature.hints) != [ROW]:
        takes = ", ".join(signature.hints) or "nothing"
        raise BadSettings(
            f"{where}: a handler of an adopted table takes its row by the name `{ROW}`, after the context if it wants "
            f"that: def work(ctx, {ROW}: …); this one takes {takes}",
            number="HF1111",
        )


def _check_results(where: str, mapping: Mapping, returns: Any) -> None:
    """Refuse a result that can't have the fields which go to the mapped columns, as far as its type says so."""
    wanted = {field: column for column, field in mapping.results.items() if field != WHOLE}
    known = fields_of(returns)
    for field, column in wanted.items():
        if known is None or field in known:
            continue
        has = f"has {', '.join(known)}" if known else "has no fields"
        raise BadSettings(
            f"{where}: the column {column} takes the field {field!r} of the result, and {_named(returns)} {has}",
            number="HF1111",
        )


def fields_of(hint: Any) -> list[str] | None:
    """The names of the fields that values of this type have; None: the type doesn't say."""
    members = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is typing.Annotated or (type(None) in typing.get_args(hint) and len(members) == 1):
        return fields_of(members[0])
    if hasattr(hint, "model_fields"):  # Pydantic's
        return list(hint.model_fields)
    info = inspect.type_info(hint)
    if isinstance(
        info,
        inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType,
    ):
        return [field.encode_name for field in info.fields]
    open_ended = (
        inspect.AnyType,
        inspect.DictType,
        inspect.UnionType,
        inspect.CustomType,
    )
    return None if isinstance(info, open_ended) else []


def _named(hint: Any) -> str:
    return f"`{getattr(hint, '__name__', hint)}`"
