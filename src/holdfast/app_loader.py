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
from holdfast.model.text import nearest
from holdfast.settings import load_settings

_DECLARED = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:\w+\.)?Holdfast\(", re.MULTILINE)
FILES = 200  # Python files that are searched at most for applications to suggest


def open_app(url: str | None) -> Holdfast:
    """The database to read: the one named, else that of HOLDFAST_APP, else the configured one."""
    from holdfast.store import open_store
    from holdfast.store.sqlite.connect import path_of  # runner processes don't need it

    app = looked_at(None, url)
    if app.settings.url.startswith("sqlite") and not path_of(app.settings).exists():
        hint = "name the database with --url or HOLDFAST_URL"
        if app.settings.app and app.sources["url"] == "default":
            hint = f"set url beside app = {app.settings.app!r}, which is only imported to run it, or {hint}"
        raise BadSettings(f"there is no file {path_of(app.settings)}: {hint}", number="HF1109")
    with closing(open_store(app.settings)) as store:
        store.schema.check()  # reading creates no schema
    return app


def looked_at(app: str | None, url: str | None) -> Holdfast:
    """The application named on the command line or in the environment, or only a database. The application that a
    directory's holdfast.toml names is not imported: looking at a directory must not run its code."""
    app = app or (None if url else os.environ.get("HOLDFAST_APP"))
    return find_app(app, url=url) if app else Holdfast(url)


def find_app(where: str | None, *, url: str | None = None, **settings: Any) -> Holdfast:
    """The application that a command line names; these settings override its own."""
    where = named_app(where)
    place, _, name = where.partition(":")
    app = _choose(place, name, load(place))
    given = {key: value for key, value in {"url": url, **settings}.items() if value is not None}
    if given:
        app.reconfigure(**given)
    return app


def named_app(where: str | None) -> str:
    """The place of the application: from the command line, else from the settings."""
    where = where or load_settings().app
    if not where:
        raise BadSettings(
            f'which application? Name it (app:hf, or app.py), or set app = "app:hf" in holdfast.toml; {applications()}',
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
    if not path.is_file():
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
    files = sorted(Path.cwd().glob("*.py")) + sorted(Path.cwd().glob("*/*.py"))
    found = []
    for path in files[:FILES]:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        found += [f"{path.relative_to(Path.cwd())}:{name}" for name in _DECLARED.findall(text)]
    near = nearest(wanted.removesuffix(".py"), [Path(one.partition(":")[0]).stem for one in found])
    found.sort(key=lambda one: not near or Path(one.partition(":")[0]).stem != near[0])
    if found:
        return "found: " + ", ".join(found)
    return "found: " + (", ".join(path.name for path in files[:10]) or "no Python files")
