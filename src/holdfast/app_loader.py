"""Finds the application that a command line names: `module:name`, `file.py:name`, either without the name, or the
setting `app`. If there is none, the error lists what was found."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.app import Holdfast, importing
from holdfast.errors import UNGUARDED, BadSettings, HoldfastError
from holdfast.model.text import nearest, quoted
from holdfast.settings import load_settings, named_twice
from holdfast.store import open_store, same_database

_DECLARED = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:\w+\.)?Holdfast\(", re.MULTILINE)
FILES = 200  # Python files that are searched at most for applications to suggest


def open_app(named: str | None, url: str | None) -> Holdfast:
    """The database to read: of the application or URL that is named, else of HOLDFAST_APP, else the configured one. It
    is there, and its schema fits."""
    from holdfast.store.sqlite.connect import is_there, path_of  # runner processes don't need it

    app = looked_at(named, url)
    if app.settings.url.startswith("sqlite") and not is_there(app.settings):
        raise _absent(app, path_of(app.settings), "--url" if url else app.sources["url"], _named(named, url))
    with closing(open_store(app.settings, reading=True)) as store:
        store.schema.check()  # reading creates no schema
    return app


def _absent(app: Holdfast, path: Path, place: str, named: str | None) -> BadSettings:
    """There is no such file. `place`: what names it. `named`: the application, if one was named."""
    if place == "default" and named:
        make = f"holdfast migrate {quoted(named)}"
        hint = f"there is no file {path}, where {named} keeps its jobs: nothing was enqueued yet. To make it: {make}"
    elif place == "default":
        hint = f"there is no file {path}: name the database with --url or HOLDFAST_URL"
        if there := app.settings.app or suggested_app():
            hint += f", or the application whose database it is: --app {quoted(there)}"
    else:
        who = "the application" if place == "argument" else place
        make = f"holdfast migrate --url {quoted(app.settings.shown_url)}"
        hint = f"{who} names {app.settings.shown_url}, and there is no file {path}: correct it, or make one: {make}"
    return BadSettings(hint, number="HF1109")


def looked_at(app: str | None, url: str | None) -> Holdfast:
    """The application named on the command line or in the environment, or only a database. The application that a
    directory's holdfast.toml names is not imported: looking at a directory must not run its code."""
    named = _named(app, url)
    return find_app(named, url=url) if named else database_at(url)


def _named(app: str | None, url: str | None) -> str | None:
    return app or (None if url else os.environ.get("HOLDFAST_APP"))


def database_at(url: str | None) -> Holdfast:
    """A database without an application: the one that this URL names, else the configured one."""
    return Holdfast(url, pinned=url is not None)


def find_app(where: str | None, *, url: str | None = None, **settings: Any) -> Holdfast:
    """The application that a command line names; these settings override its own. Only the URL doesn't: an application
    whose code names a database is refused if anything else names another one."""
    where = named_app(where)
    app = load_app(where)
    if url is not None and app.sources["url"] == "argument" and not same_database(app.settings, url):
        raise named_twice(app.settings.url, where, url, "--url")
    given = {key: value for key, value in {"url": url, **settings}.items() if value is not None}
    if given:
        app.reconfigure(**given)
    app._check_url()
    return app


def load_app(where: str) -> Holdfast:
    """The application at this place, as it is declared."""
    place, _, name = where.partition(":")
    return _choose(place, name, load(place))


def named_app(where: str | None) -> str:
    """The place of the application: from the command line, else from the settings."""
    where = where or load_settings().app
    if not where:
        raise BadSettings(
            'which application? Name it with --app app.py (or app:hf), or set app = "app:hf" in holdfast.toml; '
            f"{applications()}",
            number="HF1106",
        )
    return where


def _choose(place: str, name: str, module: ModuleType) -> Holdfast:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Holdfast)}
    there = ", ".join(sorted(found)) or "none"
    if name and name not in found:
        near = nearest(name, found)
        hint = f" (perhaps {place}:{near[0]})" if near else ""
        raise BadSettings(f"{place} has no Holdfast application called {name!r}; found: {there}{hint}", number="HF1108")
    if not name and len({id(app) for app in found.values()}) != 1:
        raise BadSettings(
            f"{place} should have one Holdfast application, or be named as {place}:name; found: {there}",
            number="HF1108",
        )
    return found[name] if name else next(iter(found.values()))


def load(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    path = Path(place)
    if path.suffix != ".py":
        try:
            with importing():
                return importlib.import_module(place)
        except ModuleNotFoundError as missing:
            if missing.name is None or not f"{place}.".startswith(f"{missing.name}."):
                raise _broken(place, missing) from missing  # the module itself imports something that is missing
            raise BadSettings(
                f"there is no module {place!r} here ({Path.cwd()}); {applications(place)}", number="HF1107"
            ) from None
        except Exception as error:
            raise _broken(place, error) from error
    try:
        found = path.is_file()
    except OSError as error:
        raise BadSettings(f"{place} can't be read: {error.strerror}", number="HF1107") from None
    if not found:
        raise BadSettings(f"there is no file {place}; {applications(place)}", number="HF1107")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, str(path.parent.absolute()))  # modules beside it can be imported, as when it is run
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        with importing():
            spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(place, error) from error
    return module


def _broken(place: str, error: Exception) -> Exception:
    """The error of the application's own code at import, and its line. Errors of Holdfast stay as they are."""
    if isinstance(error, HoldfastError):
        return _unguarded(place, error) if error.number == UNGUARDED else error
    if isinstance(error, SyntaxError):
        where, what = f"{error.filename}, line {error.lineno}", f"{type(error).__name__}: {error.msg}"
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where, what = f"{frame.filename}, line {frame.lineno}", f"{type(error).__name__}: {error}"
    return BadSettings(f"{place} can't be imported: {what} ({where}); --debug shows more", number="HF1113")


def _unguarded(place: str, error: HoldfastError) -> HoldfastError:
    """Names the application's line that used the database."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    ours = str(Path(__file__).parent)
    called = next((number for number, frame in enumerate(frames) if frame.filename.startswith(ours)), 0)
    where = f" ({frames[called - 1].filename}, line {frames[called - 1].lineno})" if called else ""
    return BadSettings(
        f"{place} uses the database, or starts a worker, when it is imported{where}. Every process that runs its jobs "
        'imports it, and would do the same again: put that under `if __name__ == "__main__":`',
        number=UNGUARDED,
    )


def applications(wanted: str = "") -> str:
    """What looks like an application in this directory, the most similar name first."""
    files = _python_files()
    found = _declared(files)
    near = nearest(wanted.removesuffix(".py"), [Path(one.partition(":")[0]).stem for one in found])
    found.sort(key=lambda one: not near or Path(one.partition(":")[0]).stem != near[0])
    if found:
        return "found: " + ", ".join(found)
    return "found: " + (", ".join(path.name for path in files[:10]) or "no Python files")


def suggested_app() -> str:
    """The first file of this directory that looks like an application, as a command line names it; "": there is none.
    Files are read, never imported."""
    found = _declared(_python_files())
    if not found:
        return ""
    file = found[0].partition(":")[0]
    return found[0] if sum(one.startswith(f"{file}:") for one in found) > 1 else file


def _python_files() -> list[Path]:
    return (sorted(Path.cwd().glob("*.py")) + sorted(Path.cwd().glob("*/*.py")))[:FILES]


def _declared(files: list[Path]) -> list[str]:
    found = []
    for path in files:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        found += [f"{path.relative_to(Path.cwd())}:{name}" for name in _DECLARED.findall(text)]
    return found
