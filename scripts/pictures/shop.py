"""The application in the pictures: what a shop does in the background. `scene.py` runs a day of it in seconds, so what
takes time here asks `spend`."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass

from holdfast import Fail, Holdfast, JobContext, Retry, Secret

hf = Holdfast()
chance = random.Random(7)  # noqa: S311 - no secret
spend = time.sleep
BROKEN = {"northwind": 0.5, "tailspin": 0.05}  # suppliers whose feeds are wrong so often
FEED = '{"prices": [12.5, 8.0, 99.9]}'

invoices = hf.adopt(
    "invoices",
    states={"queued": "open", "running": "sending", "succeeded": "sent", "failed": "failed"},
    created_at="created_at",
    attempts="tries",
    finished_at="sent_at",
    error_message="error",
)


@dataclass
class Invoice:
    id: int
    customer: str
    cents: int


@invoices.task
def send_invoice(row: Invoice) -> None:
    spend(0.6 + chance.random())


@hf.task(queue="mail", retry=30, timeout=30)
def send_receipt(order: int, to: str) -> str:
    spend(0.2 + 0.4 * chance.random())
    if chance.random() < 0.02:
        raise Retry("mail.shop.example is busy", after=300)
    return f"<{order}@shop.example>"


@hf.task(queue="images")
def resize_photo(photo: str, width: int) -> dict[str, int]:
    spend(0.3 + 2.5 * chance.random() ** 4)
    return {"width": width, "height": width * 2 // 3}


@hf.task(queue="payments", max_attempts=1)
def capture_payment(order: int, cents: int, card: Secret[str]) -> dict[str, int]:
    spend(0.4 + 0.5 * chance.random())
    if chance.random() < 0.008:
        raise Fail("the card has expired", code="CARD_EXPIRED")
    return {"captured": cents}


@hf.task(queue="imports", max_attempts=2, retry=60)
def import_feed(supplier: str, page: int) -> int:
    return len(read_prices(supplier, page))


def read_prices(supplier: str, page: int) -> list[float]:
    spend(1 + 3 * chance.random())
    answer = FEED if chance.random() > BROKEN.get(supplier, 0.0) else FEED[:-9]
    return [float(price) for price in json.loads(answer)["prices"]]


@hf.task(queue="stock", max_attempts=1)
def sync_stock(warehouse: str = "central") -> int:
    spend(2 + chance.random())
    if chance.random() < 0.06:
        raise TimeoutError(f"the warehouse {warehouse} did not answer within 30 s")
    return 1200


@hf.task(queue="documents", timeout=7200, max_attempts=5, retry=36_000)
def print_catalogue(ctx: JobContext, season: str, pages: int) -> str:
    done: int = ctx.saved or 0
    ctx.progress(done, total=pages, note="layout")
    while done < pages:
        spend(0.25)
        done += 1
        ctx.checkpoint(done, pending=pages - done)
        ctx.progress(done, total=pages, note=f"page {done}, {season}")
        if done == pages * 3 // 8 and ctx.attempt == 1:
            raise MemoryError("the picture on this page needs 3.1 GB")
    return f"{season}.pdf"


@hf.task(queue="reports", cron="0 3 * * *", timezone="Europe/Berlin")
def nightly_report() -> str:
    spend(40)
    return "report.pdf"


@hf.task(queue="stock", cron="*/15 * * * *")
def count_stock() -> int:
    spend(3)
    return 1200


@hf.task(queue="newsletter")
def send_newsletter(edition: int, to: str) -> None:
    spend(0.2)


@hf.task(queue="exports")
def export_orders(month: str) -> None:
    spend(5)
