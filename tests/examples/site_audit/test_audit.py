"""From the button to the result, on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from examples.site_audit.score import CATEGORIES
from holdfast import Exponential, Holdfast, State
from tests.adopt.systems.database import Database
from tests.examples.site_audit.application import analyze, document, row
from tests.examples.site_audit.sites import Sites
from tests.http.asking import Ask


def checks_of(found: dict[str, Any]) -> set[str]:
    return {one["check"] for one in found["findings"]}


def test_the_button_inserts_a_row_that_waits_and_nothing_else(ask: Ask, sql: Database, sites: Sites) -> None:
    id = analyze(ask, sites.good("/"))
    [found] = sql.rows("select * from audits")
    given = {name: value for name, value in found.items() if value is not None}
    assert given.pop("created_at")
    assert given == {"id": id, "url": f"{sites.url}/", "status": "pending", "priority": 10, "retry_count": 0}
    assert sites.requests == []


@pytest.mark.parametrize("body", [{"url": "javascript:alert(1)"}, {"url": 5}, {}, [], "x"])
def test_what_is_no_address_is_refused_before_a_row_is_there(ask: Ask, sql: Database, body: Any) -> None:
    assert ask.post("/api/audits", json=body).status_code == 400
    assert sql.value("select count(*) from audits") == 0


def test_a_row_by_plain_sql_is_audited_as_one_of_the_button(
    hf: Holdfast, ask: Ask, sql: Database, sites: Sites
) -> None:
    id = analyze(ask, sites.bad("/"))
    plain = str(
        sql.value("insert into audits (url, status) values (:url, 'pending') returning id", url=f"{sites.url}/")
    )
    assert int(hf.drain()) == 2
    button, other = document(ask, id), document(ask, plain)
    assert (button["status"], other["status"]) == ("completed", "completed")
    assert (button["score"], button["findings"]) == (other["score"], other["findings"])


def test_the_columns_say_what_they_always_said(hf: Holdfast, ask: Ask, sql: Database, sites: Sites) -> None:
    id = analyze(ask, sites.good("/"))
    hf.drain()
    found = row(sql, id)
    assert (found["status"], found["retry_count"], found["processing_worker_id"]) == ("completed", 0, None)
    assert found["processing_started_at"] is not None
    assert found["last_heartbeat"] is not None
    assert found["completed_at"] >= found["processing_started_at"] >= found["created_at"]
    assert (found["site"], found["error_code"]) == (f"{sites.url}/", None)


def test_a_bad_site_scores_worse_than_a_good_one_in_each_category_and_says_why(
    hf: Holdfast, ask: Ask, sites: Sites
) -> None:
    good, bad = analyze(ask, sites.good("/")), analyze(ask, sites.bad("/bad/"))
    hf.drain()
    better, worse = document(ask, good), document(ask, bad)
    assert better["scores"].keys() == worse["scores"].keys() == CATEGORIES.keys()
    for category in ("seo", "accessibility", "security", "performance"):
        assert better["scores"][category] > worse["scores"][category], category
    assert better["score"] > worse["score"] + 20
    found = checks_of(worse)
    assert {"image-texts", "form-labels", "duplicate-ids", "heading-order", "broken-links", "language"} <= found
    [label] = [one for one in worse["findings"] if one["check"] == "form-labels"]
    assert (label["severity"], label["element"]) == ("serious", '<input name="mail">')
    assert not {"language", "title", "broken-links"} & checks_of(better)


def test_every_check_is_shown_with_its_weight_and_reason(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    id = analyze(ask, sites.bad("/"))
    hf.drain()
    checks = document(ask, id)["details"]["checks"]
    assert len({check["check"] for check in checks}) == len(checks) >= 25
    assert all(check["weight"] > 0 and check["why"].endswith(".") and check["title"] for check in checks)


def test_an_audit_is_compared_with_the_one_before_of_the_same_site(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    address = sites.bad("/")
    first = analyze(ask, address)
    hf.drain()
    analyze(ask, sites.good("/other"))
    hf.drain()
    sites.good("/", '<img src="/new.png">')
    second = analyze(ask, address)
    hf.drain()
    before, now = document(ask, first), document(ask, second)
    assert before["previous"] is None
    assert (now["previous"]["id"], now["previous"]["score"]) == (first, before["score"])
    fixed = {one["check"] for one in now["compared"]["fixed"]}
    assert {"form-labels", "language", "duplicate-ids"} <= fixed
    assert {one["element"] for one in now["compared"]["new"]} >= {'<img src="/new.png">', f"{sites.url}/new.png"}
    assert [one["id"] for one in now["history"]] == [first, second]
    assert [one["score"] for one in now["history"]] == [before["score"], now["score"]]
    assert now["score"] > before["score"]
    assert document(ask, first)["previous"] is None, "what came later is not before"


def test_one_that_is_too_old_for_the_chart_is_compared_all_the_same(
    hf: Holdfast, ask: Ask, sql: Database, sites: Sites
) -> None:
    address = sites.bad("/")
    first, second = analyze(ask, address), analyze(ask, address)
    hf.drain()
    sql.changed("""
        with recursive n (n) as (select 1 union all select n + 1 from n where n < 60)
        insert into audits (url, status, site, score, scores, findings, completed_at)
        select url, 'completed', site, 50, scores, findings, {later} from audits cross join n where id = :id
    """.replace("{later}", "'2100-01-01'"), id=second)  # fmt: skip
    found = document(ask, second)
    assert (found["previous"]["id"], len(found["history"])) == (first, 50)


def test_an_unknown_audit_is_not_there(ask: Ask) -> None:
    for path in ("/api/audits/none", "/api/audits/none/broken-links"):
        answer = ask.get(path)
        assert (answer.status_code, answer.json()) == (404, {"error": "there is no such audit"})


def test_a_site_of_a_private_network_is_refused_unless_a_setting_allows_it(
    hf: Holdfast, ask: Ask, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.site_audit.app.ALLOW_PRIVATE", False)
    id = analyze(ask, sites.good("/"))
    hf.drain()
    found = document(ask, id)
    assert (found["status"], found["error_code"], found["retry_count"]) == ("failed", "PRIVATE", 1)
    assert sites.requests == []


def test_a_site_that_is_busy_is_tried_again_and_one_that_stays_so_fails_after_three_attempts(
    hf: Holdfast, ask: Ask, sites: Sites, sql: Database
) -> None:
    id = analyze(ask, sites.page("/", "busy", 503))
    hf.drain()
    waiting = document(ask, id)
    assert (waiting["status"], waiting["retry_count"], waiting["job"]["state"]) == ("pending", 1, "queued")
    assert waiting["job"]["error"] == f"{sites.url}/ answers 503"
    for _ in range(2):
        hf.adopted["audits"].job(id).change(delay=0)  # the time of the backoff is over
        hf.drain()
    found = document(ask, id)
    assert (found["status"], found["retry_count"], found["error_code"]) == ("failed", 3, "SITE_ERROR")
    assert sites.requests.count("/") == 3
    [group] = hf.error_groups("source:audits")
    assert (group.jobs, group.error_code) == (1, "SITE_ERROR")
    shown = ask.get("/api/audits").json()
    assert (shown["errors"][0]["code"], shown["errors"][0]["audits"]) == ("SITE_ERROR", 1)
    assert shown["queue"]["failed"] == 1


def test_attempts_are_spread_over_time(hf: Holdfast, ask: Ask, sites: Sites, sql: Database) -> None:
    """The second after a minute at most, the third after four."""
    id = analyze(ask, sites.page("/", "busy", 503))
    job = hf.adopted["audits"].job(id)
    assert hf.tasks["audits"]._defaults.retry == Exponential(base=60.0, factor=4.0, cap=1_800.0)
    hf.drain()
    assert job.refresh().state is State.QUEUED
    assert int(hf.drain()) == 0, "it is not due yet"


def test_people_go_before_the_night(hf: Holdfast, ask: Ask, sql: Database, sites: Sites) -> None:
    """And at night, sites that were bad go before those that nobody has seen, and these before the good ones."""
    good, bad, new = sites.good("/good/"), sites.page("/bad/", "", 404), sites.good("/new/")
    for address in (good, bad):
        analyze(ask, address)
    hf.drain()
    for address in (good, new, bad):
        sql.changed("insert into sites (url) values (:url)", url=address)
    hf.run_cron("overnight")
    hf.drain(["schedule"])
    assert sql.value("select count(*) from audits where status = 'pending'") == 3
    sites.requests.clear()
    person = analyze(ask, sites.good("/person/"))
    assert document(ask, person)["job"]["state"] == "queued", (
        "on PostgreSQL it is a job a moment after the row is there"
    )
    hf.drain()
    starts = [path for path in sites.requests if path in ("/good/", "/bad/", "/new/", "/person/")]
    assert list(dict.fromkeys(starts)) == ["/person/", "/bad/", "/new/", "/good/"]
    assert document(ask, person)["status"] == "completed"


def test_the_morning_shows_the_sites_of_the_night_the_failed_first_and_then_the_worst(
    hf: Holdfast, ask: Ask, sql: Database, sites: Sites
) -> None:
    good, bad, gone = sites.good("/good/"), sites.bad("/bad/"), sites.redirect("/gone/", "/gone/")
    for address in (good, bad, gone, sites.url + "/never/"):
        sql.changed("insert into sites (url) values (:url)", url=address)
    for address in (good, bad, gone):
        analyze(ask, address)
    hf.drain()
    worse = analyze(ask, sites.bad("/good/"))
    hf.drain()
    shown = ask.get("/api/audits").json()["nightly"]
    assert [(one["url"], one["status"]) for one in shown] == [
        (gone, "failed"), (bad, "completed"), (good, "completed"),
    ]  # fmt: skip
    assert shown[-1]["id"] == worse
    assert shown[-1]["score"] < shown[-1]["score_before"]
    assert shown[1]["score_before"] is None


def test_a_row_that_is_set_to_wait_again_is_audited_anew(hf: Holdfast, ask: Ask, sql: Database, sites: Sites) -> None:
    """Also within the hour for which a tier is kept for the next attempt."""
    id = analyze(ask, sites.bad("/"))
    hf.drain()
    before = document(ask, id)
    sites.good("/")
    sql.changed("update audits set status = 'pending' where id = :id", id=id)
    hf.drain()
    assert document(ask, id)["score"] > before["score"]
    assert checks_of(before) & {"form-labels", "title"}
    assert not checks_of(document(ask, id)) & {"form-labels", "title"}


def test_a_site_that_moves_to_another_address_is_compared_with_what_it_was(
    hf: Holdfast, ask: Ask, sites: Sites
) -> None:
    """To HTTPS, or to www.: whoever asks still names the old one, or already the new one."""
    old = sites.bad("/old")
    first = analyze(ask, old)
    hf.drain()
    new = sites.good("/new")
    sites.redirect("/old", "/new")
    second = analyze(ask, old)
    hf.drain()
    third = analyze(ask, new)
    hf.drain()
    assert document(ask, second)["site"] == new
    assert [document(ask, id)["previous"]["id"] for id in (second, third)] == [first, second]
    assert [one["id"] for one in document(ask, second)["history"]] == [first, second, third]


def test_a_page_that_is_not_there_is_not_called_a_broken_link(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    id = analyze(ask, sites.page("/", "", 404))
    hf.drain()
    found = document(ask, id)
    assert found["scores"] == {"seo": 0}
    assert [one["check"] for one in found["findings"] if one["severity"] != "info"] == ["status"]
    assert f"No link was followed: {sites.url}/ answers 404." in {one["text"] for one in found["findings"]}
    assert found["details"]["facts"]["broken_links"] == 0


def test_a_page_with_as_much_to_find_as_a_result_may_have(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    """And with a robots.txt that is as large as it may be."""
    bread = "\U0001f35e" * 60
    sites.page("/robots.txt", "# " + "面包" * 250_000, headers={"Content-Type": "text/plain; charset=utf-8"})
    things = "".join(
        f'<h1 id="{bread}{n // 2}"></h1><h4 class="{bread}" id="{n // 2}"></h4><img class="{bread}" src="{n}">'
        f'<a class="{bread}" href="#{n}"></a><input class="{bread}">'
        for n in range(200)
    )
    id = analyze(ask, sites.bad("/", things))
    hf.drain()
    found = document(ask, id)
    assert (found["status"], found["retry_count"]) == ("completed", 0)
    assert len(found["findings"]) > 350


def test_an_address_is_kept_in_one_spelling(ask: Ask, sql: Database) -> None:
    """So that the schedule knows the site that a person asks for."""
    analyze(ask, " HTTPS://Bakery.example#top ")
    assert sql.value("select url from audits") == "https://bakery.example/"
