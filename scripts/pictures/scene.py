"""A shop's jobs as a dashboard shows them: a day that is over, and workers that are at it now."""

from __future__ import annotations

import linecache
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from holdfast import Holdfast, operations
from holdfast.store import open_store
from holdfast.store.sqlite import connect
from holdfast.store.sqlite.adopted_triggers import add_functions
from holdfast.testing import Clock, Kit

SOURCE = Path(__file__).with_name("shop.py")
DEPLOYED = "/srv/shop/shop.py"  # where tracebacks say that it is
FLEET = {  # the queue of exports is nobody's
    "web-1": "mail,payments,newsletter",
    "batch-1": "images,imports,stock,invoices",
    "batch-2": "documents,reports,imports",
}
TABLE = """
create table invoices (
    id integer primary key, customer text not null, cents integer not null, status text not null default 'open',
    created_at text not null, tries integer not null default 0, sent_at text, error text
)"""
HOUR = timedelta(hours=1)
FUNCTIONS = "add_functions"  # adds what our triggers call to a connection


def shop(url: str, spend: Any = time.sleep, **settings: Any) -> dict[str, Any]:
    """The names in a fresh copy of the application."""
    text = SOURCE.read_text()
    linecache.cache[DEPLOYED] = len(text), None, text.splitlines(keepends=True), DEPLOYED
    module = sys.modules["shop"] = ModuleType("shop")
    names = vars(module)
    exec(compile(text, DEPLOYED, "exec"), names)  # noqa: S102 - our own
    names["spend"] = spend
    names["hf"].reconfigure(url=url, **settings)
    return names


@contextmanager
def scene(home: Path, hours: int = 24) -> Iterator[tuple[Holdfast, dict[str, str]]]:
    """The application, `hours` of its past, and its workers at work; and what stands in the paths of its pages."""
    path = home / "shop.db"
    url = f"sqlite:///{path}"
    execute(path, TABLE)
    past(url, path, hours * HOUR)
    names = shop(url)
    app: Holdfast = names["hf"]
    with ExitStack() as stack:
        stack.callback(app.close)
        present(names)
        for name, queues in FLEET.items():
            stack.enter_context(working(url, name, queues))
        yield app, paths(app)


def past(url: str, path: Path, length: timedelta) -> None:
    clock = Clock(datetime.now(UTC) - length)
    names = shop(
        url, clock.advance, synchronous="off", concurrency=1, threads=1, claim_size=1, lease=7200.0,
        worker_name="batch-1",
    )  # fmt: skip
    app: Holdfast = names["hf"]
    with by(clock):
        app._store = open_store(app.settings, clock=clock)
        app.migrate()
        names["invoices"].install()
        kit = Kit(app, clock)
        kit.declare_crons()
        app.schedule(
            "feeds-tailspin", names["import_feed"].bind("tailspin", 1), cron="*/20 6-22 * * MON-FRI",
            timezone="Europe/Berlin", reason="they change prices all day", by="ops",
        )  # fmt: skip
        live(names, kit, path, length)
        while app.store.rollups.fold():
            continue
        app.close()


@contextmanager
def by(clock: Clock) -> Iterator[None]:
    """Triggers in a SQLite file know only the host's clock: here they go by this one."""
    real = sqlite3.connect(":memory:", check_same_thread=False)

    def strftime(form: str, at: str, *more: str) -> Any:
        at = f"{clock.now:%Y-%m-%d %H:%M:%S.%f}" if at == "now" else at
        return real.execute(f"select strftime(?{', ?' * (1 + len(more))})", (form, at, *more)).fetchone()[0]

    def added(db: sqlite3.Connection) -> None:
        add_functions(db)
        db.create_function("strftime", -1, strftime)

    with closing(real), patch.object(connect, FUNCTIONS, added):
        yield


def live(names: dict[str, Any], kit: Kit, path: Path, length: timedelta) -> None:
    """From `length` ago to now: more and more is going on, and one supplier's feeds get worse."""
    app, clock = kit.app, kit.clock
    some = random.Random(11)  # noqa: S311 - no secret
    began, order = clock.now, 48_000
    once: dict[float, Callable[[], Any]] = {
        0.98: lambda: app.enqueue_many(names["send_newsletter"].bind(118, f"reader{n}@example.org") for n in range(40)),
        0.75: lambda: names["print_catalogue"].using(tags=["spring"], key="spring").enqueue("spring", 2400),
    }
    app.pause_queue("newsletter", reason="the link in the header is wrong", by="support")

    def so_many(mean: float) -> range:
        return range(int(mean + some.random()))

    while (passed := (clock.now - began) / length) < 1:
        minutes = 8.0 if length - (clock.now - began) > 1.2 * HOUR else 1.0
        for at in [at for at in once if at <= passed]:
            once.pop(at)()
        busy = minutes * (0.4 + 0.6 * passed**3 + 0.3 * some.random())
        names["BROKEN"]["northwind"] = 0.02 if passed < 0.8 else 0.45
        jobs = []
        for _ in so_many(3 * busy):
            order += 1
            customer = f"customer{order % 977}@example.org"
            jobs += [
                names["send_receipt"].bind(order, customer),
                names["capture_payment"].bind(order, order % 7000, "t"),
            ]
        jobs += [names["resize_photo"].bind(f"product-{some.randrange(9000)}.jpg", 1280) for _ in so_many(2 * busy)]
        suppliers = ["northwind", "tailspin", "contoso"]
        jobs += [names["import_feed"].bind(some.choice(suppliers), some.randrange(1, 40)) for _ in so_many(busy)]
        jobs += [names["sync_stock"].bind(some.choice(["central", "north"])) for _ in so_many(0.1 * busy)]
        app.enqueue_many(jobs)
        for n in so_many(0.4 * busy):
            invoice = f"customer {(order + n) % 977}", order % 9000, f"{clock.now:%Y-%m-%d %H:%M:%S}"
            execute(path, "insert into invoices (customer, cents, created_at) values (?, ?, ?)", invoice)
        kit.run_due(limit=100_000)
        clock.advance(60 * minutes * some.uniform(0.6, 1.1))


def execute(path: Path, text: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        getattr(connect, FUNCTIONS)(db)  # in the past, they go by its clock
        db.execute(text, values)


def present(names: dict[str, Any]) -> None:
    """What waits, what people did, and what is wrong just now."""
    app: Holdfast = names["hf"]
    [catalogue] = app.jobs("task:print_catalogue")
    catalogue.change(delay="0s", reason="a smaller picture is there", by="ops")
    app.pause_task("sync_stock", reason="the warehouse moves servers", until="4h", by="ops")
    app.enqueue_many(names["export_orders"].bind(f"2026-{month:02}") for month in range(1, 11))
    names["send_receipt"].using(delay="2h", tags=["reminder"]).enqueue(48_001, "customer1@example.org")
    operations.retry(app, "state:failed error:CARD_EXPIRED", "another card was entered", limit=5, by="support")
    operations.cancel(app, "task:export_orders args.month:2026-01", "exported by hand", by="ops")
    operations.run_cron(app, "count_stock", reason="after the delivery", by="ops")


@contextmanager
def working(url: str, name: str, queues: str) -> Iterator[None]:
    """A worker in a process of its own, as if it were on a host of its own."""
    with subprocess.Popen([sys.executable, "-m", __spec__.name, url, name, queues]) as process:  # noqa: S603 - our own
        try:
            yield
        finally:
            process.terminate()
            process.terminate()


def paths(app: Holdfast) -> dict[str, str]:
    """Once there is something to see: a job that is seen to get on, and errors."""
    [running] = app.jobs("task:print_catalogue")
    while (now := running.refresh().progress) is None or not now.rate:
        time.sleep(0.2)
    [failed, *_] = app.jobs("state:failed task:import_feed")
    return {"id": failed.id, "running": running.id, "group": str(failed.record.error_fingerprint)}


def work(url: str, name: str, queues: str) -> None:
    worker = shop(url, worker_name=name, host=name, threads=4, heartbeat=2.0)["hf"].worker(queues.split(","))
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


if __name__ == "__main__":
    work(*sys.argv[1:])
