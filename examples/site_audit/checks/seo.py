"""How a page is found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.robotparser import RobotFileParser

from examples.site_audit.check import DoesNotApply, Found, check
from examples.site_audit.page import HTML, Page, base_of, joined, said, same_site

SHORTEST_TITLE, LONGEST_TITLE = 10, 65  # characters
SHORTEST_DESCRIPTION, LONGEST_DESCRIPTION = 50, 165


@check("seo", 10, "The page is there", "Search engines drop what answers with an error.")
def status(page: Page) -> Iterator[Found]:
    if page.reply.status != 200:
        yield Found("critical", f"{page.url} answers {page.reply.status}.")
    elif page.reply.kind not in HTML:
        yield Found("critical", f"{page.url} is {page.reply.kind or 'of no stated type'}, not HTML.")


@check("seo", 8, "The title is good", "It is the headline of search results, bookmarks and tabs.")
def title(page: Page) -> Iterator[Found]:
    titles = page.all("head title")
    text = " ".join(titles[0].text().split()) if titles else ""
    if not text:
        yield Found("serious", "The page has no title.", titles[0] if titles else None)
    elif len(text) < SHORTEST_TITLE:
        yield Found("moderate", f"The title has only {len(text)} characters: {text}", titles[0])
    elif len(text) > LONGEST_TITLE:
        yield Found("minor", f"The title has {len(text)} characters; results show about {LONGEST_TITLE}.", titles[0])
    if len(titles) > 1:
        yield Found("minor", f"There are {len(titles)} titles.", titles[1])


@check("seo", 5, "The description is good", "Search results show it below the title.")
def description(page: Page) -> Iterator[Found]:
    meta = page.meta("description")
    text = said(meta, "content") if meta is not None else ""
    if not text:
        yield Found("moderate", "The page has no description.", meta)
    elif not SHORTEST_DESCRIPTION <= len(text) <= LONGEST_DESCRIPTION:
        good = f"{SHORTEST_DESCRIPTION} to {LONGEST_DESCRIPTION}"
        yield Found("minor", f"The description has {len(text)} characters; {good} are good.", meta)


@check("seo", 5, "There is one main heading", "It tells readers and machines what the page is about.")
def main_heading(page: Page) -> Iterator[Found]:
    headings = page.all("h1")
    if not headings:
        yield Found("moderate", "The page has no h1.")
    for extra in headings[1:]:
        yield Found("minor", f"There are {len(headings)} h1; one is enough.", extra)


@check("seo", 4, "The canonical address is clear", "It says which of several addresses of a page is meant.")
def canonical(page: Page) -> Iterator[Found]:
    links = page.all("link[rel~=canonical]")
    if not links:
        yield Found("minor", "The page does not name its canonical address.")
    elif len({said(link, "href") for link in links}) > 1:
        yield Found("serious", "The page names several canonical addresses, so none counts.", links[1])
    elif (target := joined(base_of(page), said(links[0], "href"))) is None:
        yield Found("serious", "The canonical address is none.", links[0])
    elif not same_site(target, page.url):
        yield Found("moderate", f"The canonical address is on another site: {target}", links[0])


@check("seo", 8, "The page may be listed", "noindex takes a page out of all results.")
def noindex(page: Page) -> Iterator[Found]:
    header = page.headers.get("x-robots-tag", "")
    if re.search(r"\b(noindex|none)\b", header, re.IGNORECASE):
        yield Found("serious", f"The header X-Robots-Tag says {header:.80}.")
    for name in ("robots", "googlebot"):
        meta = page.meta(name)
        if meta is not None and re.search(r"\b(noindex|none)\b", said(meta, "content"), re.IGNORECASE):
            yield Found("serious", "The page asks not to be listed.", meta)


@check("seo", 4, "robots.txt lets the page be read", "What it forbids is not read, and hardly ever listed.")
def robots(page: Page) -> Iterator[Found]:
    if page.robots is None:
        yield Found("minor", "There is no robots.txt.")
        return
    if page.robots.kind in HTML:
        yield Found("moderate", "robots.txt is an HTML page.")
        return
    rules = RobotFileParser()
    rules.parse(page.robots.text.splitlines())
    if not rules.can_fetch("*", str(page.url)):
        yield Found("serious", f"robots.txt forbids {page.url.path}.")


@check("seo", 3, "There is a sitemap", "It leads search engines to pages that few links lead to.")
def sitemap(page: Page) -> Iterator[Found]:
    if page.sitemap is None:
        yield Found("minor", "There is no sitemap, neither at /sitemap.xml nor where robots.txt says.")
    elif page.sitemap.kind in HTML or b"<loc" not in page.sitemap.body.lower():
        yield Found("moderate", f"{page.sitemap.url} is no sitemap: it names no page.")


@check(
    "seo",
    4,
    "Structured data can be read",
    "Search engines make prices, stars and events of it, or skip it if it is broken.",
)
def structured_data(page: Page) -> Iterator[Found]:
    scripts = page.all('script[type="application/ld+json"]')
    if not scripts:
        raise DoesNotApply
    for script in scripts:
        try:
            data = json.loads(script.text())
        except (ValueError, RecursionError) as error:
            yield Found("moderate", f"This JSON-LD can't be read: {error}", script)
            continue
        for item in data if isinstance(data, list) else [data]:
            for problem in _problems(item):
                yield Found("moderate", problem, script)


def _problems(item: Any) -> Iterator[str]:
    if not isinstance(item, dict):
        yield "This JSON-LD is no object."
        return
    if "@context" not in item:
        yield "This JSON-LD has no @context, so its words mean nothing."
    graph = item.get("@graph")
    for thing in graph if isinstance(graph, list) else [item]:
        if not isinstance(thing, dict) or not {"@type", "@id"} & thing.keys():
            yield "This JSON-LD has a thing without @type."


@check("seo", 3, "The encoding is stated", "Guessed wrong, umlauts and accents turn to rubbish.")
def charset(page: Page) -> Iterator[Found]:
    declared = re.search(r"charset", page.headers.get("content-type", ""), re.IGNORECASE)
    meta = page.first("meta[charset]") or page.first("meta[http-equiv=content-type i]")
    if not declared and meta is None and not page.reply.body.startswith(b"\xef\xbb\xbf"):
        yield Found("moderate", "Neither the header nor the page says which encoding it is in.")
