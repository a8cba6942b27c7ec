"""Texts that want to be scripts, in every field that anybody may write to: none is ever run, none becomes markup."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from playwright.sync_api import Page, expect

from holdfast import Holdfast
from holdfast.model.filter import quoted
from holdfast.model.fingerprint import LENGTH
from tests.browser.conftest import Open

BREAKOUTS = (
    "",
    "\"'>",
    "</td></table></pre>",
    "</script></style></title></textarea></option>",
    "-->]]>",
    "\\\"';}}",
    "&#34;>",
)
SCRIPTS = (
    "<script>pwned('script')</script>", "<script src=//evil.example/x.js></script>", "<img src=x onerror=pwned('img')>",
    "<svg onload=pwned('svg')></svg>", "<svg><script>pwned('svg')</script></svg>", "<p class=injected>",
    "<iframe srcdoc='<script>parent.pwned(1)</script>'></iframe>", "<details open ontoggle=pwned('details')>",
    "<input autofocus onfocus=pwned('focus')>", "<video><source onerror=pwned('video')></video>",
    "<body onload=pwned('body')>", "<marquee onstart=pwned('marquee')>", "<style>@import 'javascript:pwned(1)'</style>",
    "<link rel=stylesheet href=//evil.example/x.css>", "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil.example/>", "<object data=//evil.example/></object>",
    "<embed src=//evil.example/>", "<a href=javascript:pwned('a')>x</a>",
    "<form action=//evil.example/><button autofocus>", "<div hx-get=//evil.example/ hx-trigger=load>",
    "<div hx-on:load=pwned('hx') hx-trigger=load>", "<template><p class=injected></template>",
    "<math><mtext><table><mglyph><style><img src=x onerror=pwned('math')>", "' onmouseover='pwned(1)' x='",
    '" autofocus onfocus="pwned(1)" x="', "javascript:pwned('url')", "{{ 7 * 7 }}{% raw %}", "${pwned('template')}",
    "\x1b[31m\u202e\u2028red", "data:text/html,<script>pwned(1)</script>",
)  # fmt: skip
TEXTS = [breakout + script for breakout, script in product(BREAKOUTS, SCRIPTS)]
# What only they could have brought to a page. (A policy that had to stop one of them fails the test, too.)
INJECTED = (
    ".injected, img[src=x], [onerror], [onload], [ontoggle], [onfocus], [onmouseover], [onstart], iframe, object, "
    "embed, base, marquee, video, style, math, meta[http-equiv], [href^=javascript], [href^='//'], [src^='//'], "
    "[action^='//'], [hx-get^='//']"
)
# Pages that are asked for and parsed, as the browser does it, but not shown: where that went wrong.
PARSED = """async ([paths, injected]) => {
  const wrong = [];
  for (const path of paths) {
    const answer = await fetch(path);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.status !== 200 || page.querySelector(injected) || !page.querySelector("#arguments")) wrong.push(path);
  }
  return wrong;
}"""
NOW = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
JOB = f"""
insert into holdfast_jobs (
    queue, task, args, state, attempt, max_attempts, started_at, finished_at, failed_at, fence, worker, key,
    correlation_id, tags, result, checkpoint, note, done, total, error_code, error_message, error_fingerprint,
    progressed_at, asked_by, asked_why, ready_at
) values (
    :text, :text, :json, 'failed', 3, 3, {NOW}, {NOW}, {NOW}, :fence, :text, :text,
    :text, json_array(:text), :json, :json, :text, 1, 2, :text, :text, :print,
    {NOW}, :text, :text, null
) returning id"""
OTHERS = (
    "insert into holdfast_attempts values "
    f"(:id, :fence, 1, 3, :text, :text, {NOW}, {NOW}, :text, :text, :trace, :text)",
    f"insert into holdfast_steps values (:id, :text, 1, 3, {NOW}, :json)",
    f"insert into holdfast_pauses values ('queue', :text, :text, :text, null, {NOW})",
    f"insert into holdfast_pauses values ('task', :text, :text, :text, null, {NOW})",
    "insert into holdfast_audit (at, by, verb, what, job_id, parameters, reason, changed, asked, refused, ended_at) "
    f"values ({NOW}, :text, 'retry', :text, :id, :json, :text, 1, 0, 0, {NOW}), "
    f"({NOW}, :text, 'retry', :text, null, :json, :text, 1, 0, 0, {NOW})",
    "insert into holdfast_crons values "
    f"(:text, '0 3 * * *', :zone, 'none', :text, 0, 3, null, {NOW}, null, :text, :json)",
)  # fmt: skip
TRACEBACK = 'Traceback (most recent call last):\n  File "{0}", line 1, in {0}\n    {0}\nError: {0}'


def overrun(shop: Holdfast, path: Path) -> list[int]:
    """A job for each text, which has it in all of its fields, and all else that has a name or a reason. (Plain SQL may
    write what the API refuses.) Returns the jobs' ids."""
    with closing(sqlite3.connect(path)) as db, db:
        for n, text in enumerate(TEXTS, start=1):
            values: dict[str, Any] = {
                "text": text, "json": json.dumps({text: [text, {"a": text}]}), "fence": f"f{n}",
                "print": f"{n:0{LENGTH}x}", "trace": TRACEBACK.format(text), "zone": text if n % 2 else "UTC",
            }  # fmt: skip
            [values["id"]] = db.execute(JOB, values).fetchone()
            for statement in OTHERS:
                db.execute(statement, values)
    for text in TEXTS:
        shop.store.workers.register(
            id=text, name=text, host=text, pid=1, queues=[text], tasks=[text], crons=[text], slots=1
        )
    return [int(job.id) for job in shop.jobs("state:failed", limit=500)]


def look(page: Page, url: str) -> None:
    answer = page.goto(url, wait_until="load")
    assert answer is not None
    assert answer.status == 200, url
    assert page.locator(INJECTED).count() == 0, url


def test_hostile_texts_stay_texts_on_every_page(shop: Holdfast, site: str, opened: Open, tmp_path: Path) -> None:
    assert len(TEXTS) >= 200
    ids = overrun(shop, tmp_path / "jobs.db")
    assert len(ids) == len(TEXTS)
    page = opened("about:blank", ready=False)
    for path in ("", "?range=day&by=queue", "queues", "workers", "schedules", "errors", "bulk"):
        look(page, f"{site}/{path}")
    for listed in ("jobs", "audit"):
        look(page, f"{site}/{listed}")
        while (older := page.get_by_role("link", name="Older")).count():  # a list shows fifty
            look(page, urljoin(page.url, str(older.get_attribute("href"))))
    for n, id in list(enumerate(ids))[::20]:
        look(page, f"{site}/jobs/{id}")
        look(page, f"{site}/errors/{shop.job(str(id)).record.error_fingerprint}")
        look(page, f"{site}/bulk/new?verb=retry&filter={quote(f'tag:{quoted(TEXTS[n])}')}")
    assert page.evaluate(PARSED, [[f"{site}/jobs/{id}" for id in ids], INJECTED]) == []


def test_hostile_texts_stay_texts_where_they_come_live_and_are_typed(
    shop: Holdfast, site: str, opened: Open, tmp_path: Path
) -> None:
    """What comes as an event is parsed by a script, and what was typed stands in the answer."""
    page = opened("about:blank", ready=False)
    for text in TEXTS[:: len(TEXTS) // 15]:
        look(page, f"{site}/jobs?filter={quote(text)}")
        look(page, f"{site}/schedules?name={quote(text)}&cron={quote(text)}&args={quote(text)}")
        look(page, f"{site}/audit?by={quote(text)}&what={quote(text)}")
    page.goto(f"{site}/jobs")
    expect(page.locator("#pulse")).to_have_text("Live")
    ids = overrun(shop, tmp_path / "jobs.db")
    expect(page.locator(f"#job-{ids[0]}")).to_be_visible()
    assert page.locator(INJECTED).count() == 0
    page.locator("#filter").fill("task:")
    expect(page.get_by_role("option").first).to_be_visible()
    assert page.locator(INJECTED).count() == 0
