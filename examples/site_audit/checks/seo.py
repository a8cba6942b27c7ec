"""How a page is found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from examples.crawl import sitemaps
from examples.safe_http import MARKS
from examples.site_audit.check import DoesNotApply, Found, check
from examples.site_audit.page import HTML, LARGEST, XHTML, Page, joined, rules_of, said, same_site

SHORTEST_TITLE, LONGEST_TITLE = 10, 65  # characters
CANONICAL = re.compile(r"<([^<>]*)>(?:[^,<>]*?;)?\s*rel\s*=\s*\"?canonical\b", re.IGNORECASE)
LISTERS = ("robots", "googlebot", "bingbot")
VALUED = ("max-snippet", "max-image-preview", "max-video-preview", "unavailable_after")  # rules with a colon
SHORTEST_DESCRIPTION, LONGEST_DESCRIPTION = 50, 165


@check("seo", 10, "The page is there", "Search engines drop what answers with an error.")
def status(page: Page) -> Iterator[Found]:
    if page.reply.status != 200:
        yield Found("critical", f"{page.url} answers {page.reply.status}.")
    elif page.reply.kind not in HTML:
        yield Found("critical", f"{page.url} is {page.reply.kind or 'of no stated type'}, not HTML.")


@check("seo", 8, "The title is good", "It is the headline of search results, bookmarks and tabs.")
def title(page: Page) -> Iterator[Found]:
    in_pictures = {one.mem_id for one in page.all("svg title")}
    titles = [one for one in page.all("title") if one.mem_id not in in_pictures]
    text = " ".join(titles[0].text().split()) if titles else ""
    if not text:
        yield Found("serious", "The page has no title.", titles[0] if titles else None)
    elif len(text) < SHORTEST_TITLE:
        yield Found("moderate", f"The title has only {len(text)} characters: {text}", titles[0])
    elif len(text) > LONGEST_TITLE:
        yield Found("minor", f"The title has {len(text)} characters; results show about {LONGEST_TITLE}.", titles[0])
    if text and page.first("head title") is None:
        yield Found("moderate", "The title is not in the head: what stands before it is none of the head's.", titles[0])
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
    links = page.all("head link[rel~=canonical]")
    written = [*(said(link, "href") for link in links), *CANONICAL.findall(page.headers.get("link", ""))]
    named = {joined(page.base, one) if one else None for one in written}
    node = links[-1] if links else page.first("link[rel~=canonical]")
    if len(named) > 1:
        yield Found("serious", "The page names several canonical addresses, so none counts.", node)
    elif not named and node is None:
        yield Found("minor", "The page does not name its canonical address.")
    elif not named:
        yield Found("serious", "The canonical address counts only in the head.", node)
    elif (target := named.pop()) is None:
        yield Found("serious", "The canonical address is none.", node)
    elif not same_site(target, page.url):
        yield Found("moderate", f"The canonical address is on another site: {target}", node)


@check("seo", 8, "The page may be listed", "noindex takes a page out of all results.")
def noindex(page: Page) -> Iterator[Found]:
    for header in page.headers.get_list("x-robots-tag"):
        agent, colon, rules = header.partition(":")
        named = colon and "," not in agent and agent.strip().lower() not in VALUED
        if (not named or agent.strip().lower() in LISTERS) and _unlisted(rules if named else header):
            yield Found("serious", f"The header X-Robots-Tag says {header:.80}.")
    for meta in page.all("meta[name]"):
        if said(meta, "name").lower() in LISTERS and _unlisted(said(meta, "content")):
            yield Found("serious", "The page asks not to be listed.", meta)


def _unlisted(rules: str) -> bool:
    return bool({"noindex", "none"} & {rule.strip().lower() for rule in rules.split(",")})


@check("seo", 4, "robots.txt lets the page be read", "What it forbids is not read, and hardly ever listed.")
def robots(page: Page) -> Iterator[Found]:
    if page.robots is None:
        yield Found("minor", "There is no robots.txt.")
        return
    if page.robots.kind in HTML:
        yield Found("moderate", "robots.txt is an HTML page.")
        return
    if not rules_of(page.robots.text).allows(page.url.raw_path.decode()):
        yield Found("serious", f"robots.txt forbids {page.url.path:.200}.")


@check("seo", 3, "There is a sitemap", "It leads search engines to pages that few links lead to.")
def sitemap(page: Page) -> Iterator[Found]:
    if page.sitemap is None:
        yield Found("minor", "There is no sitemap, neither at /sitemap.xml nor where robots.txt says.")
        return
    if page.sitemap.sent >= LARGEST:
        return  # sitemaps may be that large, though not for us
    try:
        named = sitemaps.read(page.sitemap.body)
    except sitemaps.Broken:
        named = sitemaps.Sitemap()
    if page.sitemap.kind in HTML or not (named.pages or named.sitemaps):
        yield Found("moderate", f"{page.sitemap.url} is no sitemap: it names no page.")


@check(
    "seo",
    4,
    "Structured data can be read",
    "Search engines make prices, stars and events of it, or skip it if it is broken.",
)
def structured_data(page: Page) -> Iterator[Found]:
    scripts = page.all('script[type^="application/ld+json" i]')
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
    marked = page.reply.body.startswith((*MARKS, b"<?xml")) or page.reply.kind == XHTML  # which is UTF-8, or says so
    if not declared and meta is None and not marked:
        yield Found("moderate", "Neither the header nor the page says which encoding it is in.")
