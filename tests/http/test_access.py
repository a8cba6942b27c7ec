"""Who may come in: every role at every route, and what opens a server that nobody configured."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route as StarletteRoute

from holdfast import Access, BadArguments, BadSettings, Holdfast
from holdfast.http import gate
from holdfast.http.api import api
from holdfast.http.dashboard.pages import ACTIONS, FRAGMENTS, PAGES
from holdfast.http.gate import COOKIE, Gate
from holdfast.http.routes import ROUTES, Route
from holdfast.model.access import ROLES, Role, digest_of, suffices
from holdfast.settings import Settings
from tests.contract.places import raw
from tests.http.asking import Ask, bearer, statements

# Who may use each route, said once more: a new one has to be added here, on purpose.
EVERYONE = {*ROLES, "read", "control", "nobody"}
MAY: dict[tuple[str, str], set[str]] = {
    ("POST", "/v1/tasks/{task}/jobs"): {"submitter", "operator", "admin"},
    ("POST", "/v1/tasks/{task}/jobs/bulk"): {"submitter", "operator", "admin"},
    ("GET", "/v1/jobs"): {"viewer", "operator", "admin"},
    ("GET", "/v1/jobs/count"): {"viewer", "operator", "admin"},
    ("GET", "/v1/jobs/{id}"): {"viewer", "operator", "admin", "read", "control"},
    ("GET", "/v1/jobs/{id}/events"): {"viewer", "operator", "admin", "read", "control"},
    ("GET", "/v1/jobs/{id}/history"): {"viewer", "operator", "admin"},
    ("GET", "/v1/jobs/{id}/why"): {"viewer", "operator", "admin"},
    ("POST", "/v1/jobs/{id}/cancel"): {"operator", "admin", "control"},
    ("POST", "/v1/jobs/{id}/pause"): {"operator", "admin", "control"},
    ("POST", "/v1/jobs/{id}/resume"): {"operator", "admin", "control"},
    ("POST", "/v1/jobs/{id}/retry"): {"operator", "admin"},
    ("POST", "/v1/jobs/{id}/replay"): {"operator", "admin"},
    ("POST", "/v1/jobs/{id}/change"): {"operator", "admin"},
    ("POST", "/v1/jobs/{id}/delete"): {"operator", "admin"},
    ("GET", "/v1/error-groups"): {"viewer", "operator", "admin"},
    ("POST", "/v1/bulk/preview"): {"viewer", "operator", "admin"},
    ("POST", "/v1/bulk/retry"): {"operator", "admin"},
    ("POST", "/v1/bulk/cancel"): {"operator", "admin"},
    ("POST", "/v1/bulk/pause"): {"operator", "admin"},
    ("POST", "/v1/bulk/resume"): {"operator", "admin"},
    ("POST", "/v1/bulk/change"): {"operator", "admin"},
    ("POST", "/v1/bulk/delete"): {"operator", "admin"},
    ("GET", "/v1/queues"): {"viewer", "operator", "admin"},
    ("GET", "/v1/tasks"): {"viewer", "operator", "admin"},
    ("GET", "/v1/pauses"): {"viewer", "operator", "admin"},
    ("POST", "/v1/pauses"): {"operator", "admin"},
    ("POST", "/v1/pauses/end"): {"operator", "admin"},
    ("GET", "/v1/workers"): {"viewer", "operator", "admin"},
    ("POST", "/v1/workers/stop"): {"admin"},
    ("GET", "/v1/crons"): {"viewer", "operator", "admin"},
    ("POST", "/v1/crons/schedule"): {"admin"},
    ("POST", "/v1/crons/unschedule"): {"admin"},
    ("POST", "/v1/crons/run"): {"operator", "admin"},
    ("GET", "/v1/audit"): {"viewer", "operator", "admin"},
    ("POST", "/v1/drain"): {"operator", "admin"},
    ("GET", "/v1/metrics"): {"viewer", "operator", "admin"},
    ("GET", "/v1/alerts"): {"viewer", "operator", "admin"},
    ("GET", "/metrics"): {"viewer", "operator", "admin"},
    ("GET", "/health"): EVERYONE,
    ("GET", "/livez"): EVERYONE,
    ("GET", "/readyz"): EVERYONE,
    ("GET", "/v1/openapi.json"): EVERYONE,
}
OF = {(route.method, route.path): route for route in ROUTES}


OTHERS = {"/v1/holdfast.js", "/assets/{name:path}", "/live", "/sign-in", "/sign-out"}  # tested below


def test_there_is_no_route_beside_the_tables(hf: Holdfast) -> None:
    served = {route.path for route in api(hf, Gate(hf), runs_jobs=False).routes if isinstance(route, StarletteRoute)}
    tables = {one.path for one in (*ROUTES, *PAGES, *FRAGMENTS, *ACTIONS)}
    assert served == tables | OTHERS


def test_every_route_says_who_may_use_it() -> None:
    assert len(OF) == len(ROUTES)
    assert OF.keys() == MAY.keys()
    for place, route in OF.items():
        roles = {role for role in ROLES if route.role is None or suffices(role, route.role)}
        assert roles == MAY[place] & set(ROLES)


BODIES: dict[str, dict[str, Any]] = {
    "/v1/tasks/{task}/jobs": {"args": {"a": 1}},
    "/v1/jobs/{id}/change": {"priority": 1},
    "/v1/bulk/preview": {"verb": "cancel", "filter": "id:1"},
    "/v1/bulk/retry": {"filter": "task:none", "expected": 0},
    "/v1/bulk/cancel": {"filter": "task:none", "expected": 0},
    "/v1/bulk/pause": {"filter": "task:none", "expected": 0},
    "/v1/bulk/resume": {"filter": "task:none", "expected": 0},
    "/v1/bulk/change": {"filter": "task:none", "expected": 0, "priority": 1},
    "/v1/bulk/delete": {"filter": "task:none", "expected": 0},
    "/v1/pauses": {"kind": "queue", "name": "mail"},
    "/v1/pauses/end": {"kind": "queue", "name": "mail"},
    "/v1/workers/stop": {"worker": "w"},
    "/v1/crons/schedule": {"name": "s", "task": "add", "args": {"a": 1}, "cron": "0 3 * * *"},
    "/v1/crons/unschedule": {"name": "s"},
    "/v1/crons/run": {"name": "s"},
    "/v1/drain": {"jobs": 1, "queues": ["none"]},
}


def request(ask: Ask, route: Route, id: str, headers: dict[str, str]) -> int:
    path = route.path.format(task="add", id=id)
    content: dict[str, Any] = {}
    if route.lines:
        content, headers = {"content": '{"args": {"a": 1}}'}, {**headers, "Content-Type": "application/jsonl"}
    elif route.path in BODIES and route.method == "POST":
        content = {"json": BODIES[route.path]}
    return ask(route.method, path, headers=headers, **content).status_code


@pytest.mark.parametrize("place", MAY, ids=" ".join)
def test_every_role_and_token_at_every_route(tasked: Holdfast, place: tuple[str, str]) -> None:
    route = OF[place]
    keys: dict[str, dict[str, str]] = {role: bearer(tasked.create_api_key(role, role)) for role in ROLES}
    ask = Ask(tasked.asgi())
    tasked.schedule("s", tasked.tasks["add"].bind(1), cron="0 3 * * *")
    tasked.store.workers.register(id="w~1", name="w", host="h", pid=1, queues=None, tasks=["add"], slots=1)
    found = set()
    for who in (*ROLES, "read", "control", "nobody"):
        job = tasked.tasks["fail"].using(delay=1000).enqueue("x")
        if route.path.endswith("resume"):
            job.pause()
        if route.path.endswith(("events", "retry", "delete")):
            job.cancel()  # what happens must have an end; these verbs take a job that has ended
        tokens = {"read": bearer(job.token()), "control": bearer(job.token("control"))}
        headers = {**keys, **tokens}.get(who, {})
        before, calls = tasked.count(), len(tasked.audit())
        status = request(ask, route, job.id, headers)
        if status < 300:
            found.add(who)
            if route.method == "POST" and route.role in ("operator", "admin") and route.path != "/v1/drain":
                by = f"API key {who}" if who in ROLES else "the holder of its token"
                assert len(tasked.audit()) == calls + 1, "whatever operators do is recorded"
                assert tasked.audit()[0].by == by
        else:
            assert status == (401 if who == "nobody" else 403)
            assert (tasked.count(), len(tasked.audit())) == (before, calls), "nothing was enqueued or changed"
            if route.method == "POST" and route.scope:
                assert job.refresh().record.state == ("paused" if route.path.endswith("resume") else "queued")
    assert found == MAY[place]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # on PostgreSQL reads and writes take the same way
@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "GET"], ids=lambda route: route.path)
def test_what_only_looks_writes_nothing(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch, route: Route) -> None:
    """A browser follows links of other sites."""
    job = tasked.tasks["add"].enqueue(1)
    job.cancel()
    key = bearer(tasked.create_api_key("ops", "admin"))
    for way in ("write", "transaction"):
        monkeypatch.setattr(tasked.store.db, way, None)
    healthy = route.path != "/health"  # no worker is up
    assert request(Ask(tasked.asgi()), route, job.id, key) == (200 if healthy else 503)


def test_a_key_that_is_wrong_or_revoked_opens_nothing(tasked: Holdfast) -> None:
    ask = Ask(tasked.asgi(open="submitter"))
    key = tasked.create_api_key("ci", "admin")
    tasked.tasks["add"].enqueue(1)
    assert ask.get("/v1/jobs/1", headers=bearer(key)).status_code == 200
    for wrong in (key[:-1], key + "x", "hfk_", "hfk__", f"hfk_{'0' * 12}_{'x' * 43}", "hfk_\u00e9".encode().hex()):
        assert ask.get("/v1/jobs/1", headers=bearer(wrong)).status_code in (401, 403)
    assert tasked.revoke_api_key("ci", by="ops", reason="leaked")
    assert ask.get("/v1/jobs/1", headers=bearer(key)).status_code == 401
    # A wrong key is no less than none: it is not taken for a visitor's.
    assert ask.submit("add", args={"a": 1}, headers=bearer(key)).status_code == 401
    assert not tasked.revoke_api_key("ci")


@pytest.mark.parametrize("place", ["/v1/jobs/1/events", "/live?view=/jobs/1"])
def test_who_listens_by_a_key_has_to_show_it_again(
    tasked: Holdfast, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(gate, "ANEW", 0.1)
    tasked.tasks["add"].using(delay=3600).enqueue(1)
    ask = Ask(tasked.asgi(), **bearer(tasked.create_api_key("ann", "viewer")))
    assert ask.get(place).status_code == 200, "and it has an end"
    tasked.revoke_api_key("ann")
    assert ask.get(place).status_code == 401


def test_a_key_in_an_address_opens_nothing(tasked: Holdfast) -> None:
    tasked.tasks["add"].enqueue(1).cancel()
    refused = Ask(tasked.asgi(open=True)).get(f"/v1/jobs/1/events?token={tasked.create_api_key('ann', 'admin')}")
    assert (refused.status_code, refused.json()["code"]) == (401, "HF1501")


def test_keys_are_stored_as_hashes_and_their_making_is_recorded(tasked: Holdfast, settings: Settings) -> None:
    key = tasked.create_api_key("ci", "viewer", by="ops", reason="for tests")
    _, id, secret = key.split("_", 2)
    [stored] = tasked.store.db.read("api_key", id=id)
    assert stored["digest"] == digest_of(key)
    assert secret not in repr(stored)
    [listed] = tasked.api_keys()
    assert (listed.name, listed.role, listed.created_by) == ("ci", "viewer", "ops")
    tasked.revoke_api_key("ci", by="ops")
    calls = [(call.verb, call.what, call.by, call.reason, call.parameters) for call in tasked.audit()]
    assert calls == [
        ("revoke_api_key", "ci", "ops", None, {}), ("create_api_key", "ci", "ops", "for tests", {"role": "viewer"}),
    ]  # fmt: skip
    with raw(settings) as sql:
        assert key not in repr(sql("select * from {audit}"))


def test_bad_keys_are_not_made(tasked: Holdfast) -> None:
    tasked.create_api_key("ci", "viewer")
    with pytest.raises(BadArguments, match="is taken"):
        tasked.create_api_key("ci", "viewer")
    with pytest.raises(BadArguments, match="role is one of"):
        tasked.create_api_key("other", "root")  # type: ignore[arg-type]
    with pytest.raises(BadArguments):
        tasked.create_api_key("", "viewer")


# -- the application's own rule ----------------------------------------------------------------------------------------


def by_header(request: Request) -> Access | None:
    role = request.headers.get("x-role")
    return Access(role, by="ann") if role else None  # type: ignore[arg-type]


async def by_header_slowly(request: Request) -> Access | None:
    return by_header(request)


class Rule:
    async def __call__(self, request: Request) -> Access | None:
        return by_header(request)


@pytest.mark.parametrize("authorize", [by_header, by_header_slowly, Rule()])
def test_the_application_decides(tasked: Holdfast, authorize: Any) -> None:
    ask = Ask(tasked.asgi(authorize))
    job = tasked.tasks["hidden"].enqueue()
    assert ask.get(f"/v1/jobs/{job.id}").status_code == 401
    assert ask.get(f"/v1/jobs/{job.id}", headers={"X-Role": "submitter"}).status_code == 403
    assert ask.post(f"/v1/jobs/{job.id}/cancel", headers={"X-Role": "operator"}).status_code == 200
    assert tasked.audit()[0].by == "ann"
    # Its mistakes open nothing.
    assert ask.get(f"/v1/jobs/{job.id}", headers={"X-Role": "root"}).status_code == 500


def test_a_rule_that_fails_opens_nothing(tasked: Holdfast) -> None:
    def broken(request: Request) -> Access | None:
        raise LookupError("c4n4ry")

    job = tasked.tasks["add"].enqueue(1)
    refused = Ask(tasked.asgi(broken, open="admin")).get(f"/v1/jobs/{job.id}")
    assert refused.status_code == 500
    assert "c4n4ry" not in refused.text


@pytest.mark.parametrize(("status", "code"), [(401, "HF1501"), (403, "HF1502"), (303, "HF1502")])
@pytest.mark.parametrize("path", ["/v1/jobs", "/jobs"])
def test_the_rule_may_refuse_in_words_of_its_own(tasked: Holdfast, path: str, status: int, code: str) -> None:
    def strict(request: Request) -> Access | None:
        raise HTTPException(status, "sign in first", headers={"Location": "/login"})

    refused = Ask(tasked.asgi(strict)).get(path)
    assert (refused.status_code, refused.headers["location"]) == (status, "/login")
    assert (refused.json()["detail"], refused.json()["code"]) == ("sign in first", code)


def test_who_the_rule_does_not_know_has_the_role_of_everyone(tasked: Holdfast) -> None:
    ask = Ask(tasked.asgi(by_header, open="submitter"))
    assert ask.submit("add", args={"a": 1}).status_code == 202
    assert ask.get("/v1/jobs/1").status_code == 403
    assert Ask(tasked.asgi(open=True)).get("/v1/jobs/1").status_code == 200


def test_closed_by_default(tasked: Holdfast) -> None:
    job = tasked.tasks["add"].enqueue(1)
    for client in ("192.0.2.7", "127.0.0.1"):
        ask = Ask(tasked.asgi(), client=client)
        assert ask.submit("add", args={"a": 1}).status_code == 401
        refused = ask.get(f"/v1/jobs/{job.id}")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("wrong", [{"open": "everyone"}, {"open": 1.5}, {"authorize": "ann"}])
def test_a_rule_that_means_nothing_is_refused(tasked: Holdfast, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        tasked.asgi(**wrong)


# -- on a loopback address ---------------------------------------------------------------------------------------------


def local(app: Holdfast, client: str = "127.0.0.1", host: str = "localhost:8000", **headers: str) -> Ask:
    return Ask(
        api(app, Gate(app, local=True, hosts={"localhost"}), runs_jobs=False), client=client, host=host, **headers
    )


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "127.9.9.9"])
@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_on_this_machine_everything_is_allowed(tasked: Holdfast, client: str, host: str) -> None:
    assert local(tasked, client, host).submit("add", args={"a": 1}).status_code == 202


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("192.0.2.7", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, 401),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.7"}, 401),
        ("127.0.0.1", {"X-Forwarded-Port": "443"}, 401),
        ("127.0.0.1", {"X-Original-Forwarded-For": "192.0.2.7"}, 401),
        ("127.0.0.1", {"X-Cluster-Client-IP": "192.0.2.7"}, 401),
        ("127.0.0.1", {"X-Real-IP": "192.0.2.7"}, 401),
        ("127.0.0.1", {"Via": "1.1 proxy"}, 401),
        ("127.0.0.1", {"CF-Connecting-IP": "192.0.2.7"}, 401),
        ("127.0.0.1", {"host": "evil.example:8000"}, 421),
        ("127.0.0.1", {"host": "localhost.evil.example"}, 421),
        ("127.0.0.1", {"host": "[::1"}, 421),
        ("127.0.0.1", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("127.0.0.1", {"Sec-Fetch-Site": "same-site"}, 403),
        ("127.0.0.1", {"Origin": "http://evil.example"}, 403),
        ("127.0.0.1", {"Origin": "null"}, 403),
        ("127.0.0.1", {"Origin": "http://[::1"}, 403),
    ],
)
def test_others_are_not_taken_for_this_machine(
    tasked: Holdfast, client: str, headers: dict[str, str], status: int
) -> None:
    ask = local(tasked, client, **headers)
    assert ask.submit("add", args={"a": 1}).status_code == status
    assert tasked.count() == 0


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "http://localhost:8000"}]
)
def test_our_own_pages_may(tasked: Holdfast, headers: dict[str, str]) -> None:
    assert local(tasked, **headers).submit("add", args={"a": 1}).status_code == 202


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/count", "/jobs", "/live?view=/jobs/1", "/jobs/1/now"])
def test_pages_of_other_sites_may_not_look_from_this_machine(tasked: Holdfast, path: str) -> None:
    tasked.tasks["add"].enqueue(1)
    for site in ("cross-site", "same-site"):
        assert local(tasked, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).get(path).status_code == 403
    assert local(tasked, Origin="https://evil.example").get(path).status_code == 403


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}])
def test_pages_of_other_sites_may_not_submit_where_everyone_may(tasked: Holdfast, headers: dict[str, str]) -> None:
    """It would be the address of whoever looks at that page that submits, or their session."""
    assert Ask(tasked.asgi(open="submitter"), **headers).submit("add", args={"a": 1}).status_code == 403
    assert tasked.count() == 0


def test_a_link_of_another_site_leads_here(tasked: Holdfast) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert local(tasked, **headers).get("/jobs").status_code == 200
    assert local(tasked, **headers).submit("add", args={"a": 1}).status_code == 403


def test_who_shows_a_key_may_come_from_another_site(tasked: Holdfast) -> None:
    key = tasked.create_api_key("shop", "submitter")
    ask = Ask(tasked.asgi(), **{"Sec-Fetch-Site": "cross-site", "Origin": "https://shop.example"})
    assert ask.submit("add", args={"a": 1}, headers=bearer(key)).status_code == 202


def by_bearer(request: Request) -> Access | None:
    return Access("submitter", by="ann") if request.headers.get("authorization") == "Bearer eyJ.of.ours" else None


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-site"}, {"Origin": "https://shop.example"}])
def test_who_shows_a_token_that_the_rule_knows_may_come_from_another_site(
    tasked: Holdfast, headers: dict[str, str]
) -> None:
    """A browser sends no such header by itself, as it does with a session."""
    ask = Ask(tasked.asgi(by_bearer, open="submitter"), **headers)
    assert ask.submit("add", args={"a": 1}, headers=bearer("eyJ.of.ours")).status_code == 202
    for other in (bearer("eyJ.of.others"), {"Authorization": "Basic YW5uOng="}, {}):
        assert ask.submit("add", args={"a": 1}, headers=other).status_code == 403
    assert tasked.count() == 1


@pytest.mark.parametrize("role", [role for role in ROLES if not suffices(role, "operator")])
def test_a_refused_request_reads_no_job(tasked: Holdfast, role: Role) -> None:
    ask = Ask(tasked.asgi(open=role))
    tasked.tasks["add"].enqueue(1)
    with statements(tasked) as run:
        assert ask.post("/v1/jobs/1/cancel").status_code == 403
    assert run == []


# -- the dashboard -----------------------------------------------------------------------------------------------------

LOOK = {"viewer", "operator", "admin"}
OPERATE = {"operator", "admin"}
# Who may see each page and use each form, said once more: a new one has to be added here, on purpose.
MAY_SEE: dict[str, set[str]] = {
    "/": LOOK,
    "/queues": LOOK,
    "/jobs": LOOK,
    "/jobs/{id}": LOOK,
    "/jobs/{id}/replay": OPERATE,
    "/errors": LOOK,
    "/errors/{group}": LOOK,
    "/bulk": LOOK,
    "/bulk/new": OPERATE,
    "/workers": LOOK,
    "/schedules": LOOK,
    "/audit": LOOK,
}
MAY_ASK: dict[str, set[str]] = {  # for a piece of a page
    "/jobs/suggest": LOOK,
    "/jobs/count": LOOK,
    "/jobs/{id}/now": OPERATE,
}
MAY_DO: dict[str, set[str]] = {
    "/queues/pause": OPERATE,
    "/queues/resume": OPERATE,
    "/jobs/choose": OPERATE,
    "/jobs/{id}/do": OPERATE,
    "/jobs/{id}/replay": OPERATE,
    "/bulk/start": OPERATE,
    "/tasks/pause": OPERATE,
    "/tasks/resume": OPERATE,
    "/filters/resume": OPERATE,
    "/workers/stop": {"admin"},
    "/schedules/add": {"admin"},
    "/schedules/remove": {"admin"},
    "/schedules/run": OPERATE,
    "/schedules/pause": OPERATE,
    "/schedules/resume": OPERATE,
}
FORM: dict[str, dict[str, str]] = {  # what a form needs so that it changes something
    "/queues/pause": {"queue": "mail"},
    "/queues/resume": {"queue": "mail"},
    "/jobs/{id}/do": {"verb": "pause"},
    "/jobs/{id}/replay": {"args": "{}"},
    "/bulk/start": {"verb": "pause", "filter": "state:queued"},
    "/tasks/pause": {"task": "add"},
    "/tasks/resume": {"task": "add"},
    "/filters/resume": {"filter": "task:add args.b:7"},
    "/workers/stop": {"worker": "w~1"},
    "/schedules/add": {"name": "new", "task": "add", "cron": "0 3 * * *", "args": '{"a": 1}'},
    "/schedules/remove": {"name": "s"},
    "/schedules/run": {"name": "s"},
    "/schedules/pause": {"name": "s"},
    "/schedules/resume": {"name": "s"},
}


def test_every_page_and_every_form_says_who_may_use_it() -> None:
    for may, there in ((MAY_SEE, PAGES), (MAY_ASK, FRAGMENTS), (MAY_DO, ACTIONS)):
        assert may.keys() == {one.path for one in there}
        for one in there:
            assert {role for role in ROLES if suffices(role, one.role)} == may[one.path]


def filled(path: str, app: Holdfast) -> str:
    """A page's or form's path, with names of what is there."""
    job = app.tasks["fail"].using(delay=1000, tags=["t"]).enqueue("x")
    return path.format_map({"id": job.id, "group": "0" * 16, "name": "s", "queue": "mail", "worker": "w~1"})


@pytest.mark.parametrize("path", MAY_SEE)
def test_every_role_at_every_page_and_its_live_part(tasked: Holdfast, path: str) -> None:
    tasked.schedule("s", tasked.tasks["add"].bind(1), cron="0 3 * * *")
    keys = {role: tasked.create_api_key(role, role) for role in ROLES}
    ask = Ask(tasked.asgi())
    place = filled(path, tasked)
    seen = set()
    for who in (*ROLES, "token", "nobody"):
        cookie = {"Cookie": f"{COOKIE}={keys[who]}"} if who in keys else {}
        if who == "token":
            cookie = bearer(tasked.tasks["add"].enqueue(1).token("control"))
        status = ask.get(place, headers=cookie).status_code
        if status in (200, 404):  # a group of errors that nobody has
            seen.add(who)
        else:
            assert status == (401 if who == "nobody" else 403)
            assert ask.get("/live", params={"view": place}, headers=cookie).status_code == status
    assert seen == MAY_SEE[path]


@pytest.mark.parametrize("path", MAY_ASK)
def test_every_role_at_every_piece_of_a_page(tasked: Holdfast, path: str) -> None:
    keys = {role: tasked.create_api_key(role, role) for role in ROLES}
    ask = Ask(tasked.asgi())
    place = filled(path, tasked)
    seen = set()
    for who in (*ROLES, "nobody"):
        cookie = {"Cookie": f"{COOKIE}={keys[who]}"} if who in keys else {}
        status = ask.get(place, headers=cookie).status_code
        if status in (200, 409):  # a job that does not run does nothing
            seen.add(who)
        else:
            assert status == (401 if who == "nobody" else 403)
    assert seen == MAY_ASK[path]


@pytest.mark.parametrize("path", MAY_DO)
def test_every_role_at_every_form(tasked: Holdfast, path: str) -> None:
    keys = {role: tasked.create_api_key(role, role) for role in ROLES}
    ask = Ask(tasked.asgi())
    tasked.pause_queue("mail")
    place, calls = filled(path, tasked), len(tasked.audit())
    done = set()
    for who in (*ROLES, "token", "nobody"):
        cookie = {"Cookie": f"{COOKIE}={keys[who]}"} if who in keys else {}
        if who == "token":
            cookie = bearer(tasked.tasks["add"].enqueue(1).token("control"))
        status = ask.post(place, headers=cookie, data=FORM.get(path, {})).status_code
        if status == 303:
            done.add(who)
        else:
            assert status == (401 if who == "nobody" else 403)
            if not done:
                assert len(tasked.audit()) == calls, "nothing was changed"
    assert done == MAY_DO[path]


@pytest.mark.parametrize("path", [*MAY_DO, "/sign-in", "/sign-out"])
@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}])
def test_no_other_site_can_send_a_form(tasked: Holdfast, path: str, headers: dict[str, str]) -> None:
    key = tasked.create_api_key("ops", "admin")
    place, calls = filled(path, tasked), len(tasked.audit())
    signed_in = Ask(tasked.asgi(), Cookie=f"{COOKIE}={key}", **headers)
    assert signed_in.post(place, data={"key": key, **FORM.get(path, {})}).status_code == 403
    assert local(tasked, **headers).post(place, data={"key": key}).status_code == 403
    assert len(tasked.audit()) == calls


@pytest.mark.parametrize("path", [*MAY_SEE, "/live", "/queues/pause", "/sign-in"])
def test_pages_answer_only_to_names_of_this_server(tasked: Holdfast, path: str) -> None:
    stranger = local(tasked, host="evil.example")
    method = "POST" if path in (*MAY_DO, "/sign-in") else "GET"
    assert stranger(method, filled(path, tasked), params={"view": "/"}).status_code == 421


def test_signing_in_sets_a_cookie_that_scripts_and_other_sites_do_not_get(tasked: Holdfast) -> None:
    key = tasked.create_api_key("ann", "viewer")
    ask = Ask(tasked.asgi())
    assert "API key" in ask.get("/queues").text, "a page that can't be seen offers to sign in"
    wrong = ask.post("/sign-in", data={"key": key + "x", "back": "/queues"})
    assert (wrong.status_code, wrong.headers.get("set-cookie")) == (401, None)
    answer = ask.post("/sign-in", data={"key": key, "back": "/queues"})
    assert (answer.status_code, answer.headers["location"]) == (303, "queues")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    name = cookie.partition(";")[0]
    assert ask.get("/queues", headers={"Cookie": name}).status_code == 200
    assert 'action="' not in ask.get("/queues", headers={"Cookie": name}).text.replace('action="sign-out"', "")
    gone = ask.post("/sign-out", headers={"Cookie": name})
    assert gone.status_code == 303
    assert "Max-Age=0" in gone.headers["set-cookie"]
    assert tasked.revoke_api_key("ann")
    assert ask.get("/queues", headers={"Cookie": name}).status_code == 401


@pytest.mark.parametrize(("origin", "secure"), [("https://jobs.example", True), ("http://jobs.example", False)])
def test_the_cookie_is_not_sent_in_the_clear_to_who_came_by_tls(tasked: Holdfast, origin: str, secure: bool) -> None:
    ask = Ask(tasked.asgi(), Origin=origin)
    answer = ask.post("/sign-in", data={"key": tasked.create_api_key("ann", "viewer")})
    assert ("Secure" in answer.headers["set-cookie"].split("; ")) == secure


def test_signing_in_leads_to_no_other_site(tasked: Holdfast) -> None:
    key = tasked.create_api_key("ann", "viewer")
    for back in ("https://evil.example/", "//evil.example/queues", "javascript:alert(1)", "/\\evil.example", ""):
        answer = Ask(tasked.asgi()).post("/sign-in", data={"key": key, "back": back})
        assert (answer.status_code, answer.headers["location"]) == (303, ".")


def test_assets_are_for_everybody_and_nothing_else_is(tasked: Holdfast) -> None:
    ask = Ask(tasked.asgi())
    assert ask.get("/assets/dashboard.css").status_code == 200
    for name in ("../page.py", "%2e%2e/page.py", "vendor", "", "..%2fsite.py", "/etc/passwd"):
        assert ask.get(f"/assets/{name}").status_code == 404
