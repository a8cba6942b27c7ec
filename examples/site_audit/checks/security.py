"""What a page does for the safety of its visitors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from examples.site_audit.check import DoesNotApply, Found, Severity, check, moment
from examples.site_audit.page import LOADED, Page, said

HALF_A_YEAR = 180 * 24 * 3600  # seconds
LEAKY_REFERRERS = {"unsafe-url", "no-referrer-when-downgrade"}
REFERRERS = LEAKY_REFERRERS | {
    "no-referrer", "origin", "same-origin", "strict-origin", "origin-when-cross-origin",
    "strict-origin-when-cross-origin",
}  # fmt: skip


@check("security", 10, "The page comes over HTTPS", "Otherwise everybody on the way can read and change it.")
def https(page: Page) -> Iterator[Found]:
    if page.url.scheme != "https":
        yield Found("critical", f"{page.url} is sent without encryption.")
    for reply in page.chain[1:-1]:
        if reply.url.scheme != "https" and page.url.scheme == "https":
            yield Found("minor", f"The way to the page leads over {reply.url}.")


@check("security", 5, "Browsers are told to stay with HTTPS", "Else the first request of a visit can be caught (HSTS).")
def hsts(page: Page) -> Iterator[Found]:
    if page.url.scheme != "https":
        raise DoesNotApply  # browsers don't listen to it there
    header = page.headers.get("strict-transport-security", "")
    age = re.search(r"max-age\s*=\s*\"?(\d{1,12})", header, re.IGNORECASE)
    if age is None:
        yield Found("moderate", "There is no header Strict-Transport-Security.")
    elif int(age[1]) < HALF_A_YEAR:
        yield Found("minor", f"Strict-Transport-Security holds for {int(age[1]):,} s only; half a year is good.")


@check("security", 7, "Foreign scripts are kept out", "A content security policy stops most injected scripts.")
def content_policy(page: Page) -> Iterator[Found]:
    meta = page.first("meta[http-equiv=content-security-policy i]")
    policy = page.headers.get("content-security-policy", "") or (said(meta, "content") if meta is not None else "")
    if not policy:
        yield Found("moderate", "There is no Content-Security-Policy.")
        return
    judged = [list(_judged(one)) for one in policy.split(",")]  # all of them apply, so the strictest counts
    for severity, text in min(judged, key=lambda found: [("minor", "moderate").index(one) for one, _ in found]):
        yield Found(severity, text, meta)


def _judged(policy: str) -> Iterator[tuple[Severity, str]]:
    """What one policy lets in."""
    directives = {name: rest for name, *rest in (part.lower().split() for part in policy.split(";") if part.split())}
    scripts = directives.get("script-src", directives.get("default-src"))
    if scripts is None or ({"*", "http:", "https:", "data:"} & set(scripts) and "'strict-dynamic'" not in scripts):
        yield "moderate", "The Content-Security-Policy allows scripts from everywhere."
    elif "'unsafe-inline'" in scripts and not any(one.startswith(("'nonce-", "'sha")) for one in scripts):
        yield "minor", "The Content-Security-Policy allows scripts in the page ('unsafe-inline')."


@check("security", 4, "Types are not guessed", "A browser that guesses may run as script what was uploaded as text.")
def nosniff(page: Page) -> Iterator[Found]:
    if said_first(page, "x-content-type-options") != "nosniff":
        yield Found("minor", "There is no header X-Content-Type-Options: nosniff.")


@check("security", 4, "Others can't frame the page", "In a frame of theirs, they can steal clicks.")
def framing(page: Page) -> Iterator[Found]:
    told = said_first(page, "x-frame-options") in ("deny", "sameorigin")
    if not told and "frame-ancestors" not in page.headers.get("content-security-policy", "").lower():
        yield Found("minor", "Neither frame-ancestors nor X-Frame-Options says who may frame the page.")


@check("security", 2, "Addresses are not passed on", "Addresses of pages may tell other sites what a visitor reads.")
def referrer(page: Page) -> Iterator[Found]:
    meta = page.meta("referrer")
    policy = page.headers.get("referrer-policy", "") or (said(meta, "content") if meta is not None else "")
    known = [one for one in policy.lower().replace(" ", "").split(",") if one in REFERRERS]
    if known and known[-1] in LEAKY_REFERRERS:
        yield Found("moderate", f"Referrer-Policy is {known[-1]}: other sites see whole addresses.", meta)


@check("security", 5, "Cookies are guarded", "A cookie that scripts or plain HTTP can reach is soon stolen.")
def cookies(page: Page) -> Iterator[Found]:
    found = [_cookie(cookie) for reply in page.chain for cookie in reply.headers.get_list("set-cookie")]
    kept = [(name, flags) for name, flags in found if not _removed(flags)]
    if not kept:
        raise DoesNotApply
    for name, flags in kept:
        missing = [flag for flag in ("Secure", "HttpOnly", "SameSite") if flag.lower() not in flags]
        if missing:
            severe: Severity = "moderate" if "Secure" in missing or "HttpOnly" in missing else "minor"
            yield Found(severe, f"The cookie {name:.60} lacks {', '.join(missing)}.")
        elif flags["samesite"] not in ("lax", "strict"):
            yield Found("minor", f"The cookie {name:.60} is sent along with what other sites ask for (SameSite).")


def _cookie(header: str) -> tuple[str, dict[str, str]]:
    """Its name, and its attributes in small letters."""
    first, *rest = header.split(";")
    pairs = [part.partition("=") for part in rest]
    return first.partition("=")[0].strip() or "without a name", {
        name.strip().lower(): value.strip().lower() for name, _, value in pairs
    }


def _removed(flags: dict[str, str]) -> bool:
    """Does the header take the cookie away?"""
    if "max-age" in flags:
        return re.fullmatch(r"-\d+|0+", flags["max-age"]) is not None
    ends = moment(flags.get("expires", ""))
    return ends is not None and ends < time.time()


@check("security", 6, "Nothing comes over plain HTTP", "One unencrypted script undoes the encryption of the page.")
def mixed_content(page: Page) -> Iterator[Found]:
    if page.url.scheme != "https":
        raise DoesNotApply
    for node, url in page.references(LOADED):
        if url.scheme == "http":
            active = node.tag in ("script", "iframe", "frame", "link", "object", "embed")
            yield Found("serious" if active else "moderate", "This is loaded without encryption.", node)


def said_first(page: Page, header: str) -> str:
    """What counts where a server sends a header twice."""
    return page.headers.get(header, "").partition(",")[0].strip().lower()
