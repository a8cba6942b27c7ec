"""Whether everybody can use a page. What needs a browser is in `browser.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from examples.site_audit.check import DoesNotApply, Found, check
from examples.site_audit.page import XHTML, Page, said

VAGUE = {"click here", "here", "more", "read more", "link", "this", "mehr", "hier", "weiter"}
NAMED = "img[alt], [aria-label], [aria-labelledby], [title]"
LABELLED = "input, select, textarea"
UNLABELLED = {"hidden", "submit", "reset", "button", "image"}  # inputs that need no label


@check("accessibility", 7, "The language is stated", "Screen readers choose their voice by it.")
def language(page: Page) -> Iterator[Found]:
    html = page.first("html")
    lang = said(html, "lang") if html is not None else ""
    if html is not None and not lang and page.reply.kind == XHTML:
        lang = said(html, "xml:lang")
    if not lang:
        yield Found("serious", "The html element does not say which language the page is in.", html)
    elif not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*", lang):
        yield Found("moderate", f"{lang!r:.40} is no language.", html)


@check("accessibility", 6, "It fits on phones, and can be enlarged", "Many can read only what they can enlarge.")
def viewport(page: Page) -> Iterator[Found]:
    meta = page.meta("viewport")
    content = said(meta, "content").lower().replace(" ", "") if meta is not None else ""
    if "width=" not in content and "initial-scale=" not in content:
        yield Found("serious", "The page has no viewport, so phones show it tiny.", meta)
    scale = re.search(r"maximum-scale=(\d{1,8}(\.\d{0,8})?|\.\d{1,8})", content)
    if re.search(r"user-scalable=(no|0)\b", content) or (scale and float(scale[1]) < 2):
        yield Found("serious", "The page forbids to enlarge it.", meta)


@check("accessibility", 8, "Pictures have a text", 'It is what blind people get of them; alt="" marks mere decoration.')
def image_texts(page: Page) -> Iterator[Found]:
    images = [one for one in page.all("img, input[type=image], area[href]") if not _hidden(one)]
    if not images:
        raise DoesNotApply
    for image in images:
        if "alt" not in image.attributes and not _named(image) and said(image, "role") not in ("presentation", "none"):
            yield Found("serious", "This picture has no alt text.", image)


@check("accessibility", 8, "Form fields have labels", "Without one, nobody who can't see the page knows what to type.")
def form_labels(page: Page) -> Iterator[Found]:
    fields = [one for one in page.all(LABELLED) if said(one, "type").lower() not in UNLABELLED and not _hidden(one)]
    if not fields:
        raise DoesNotApply
    labelled = {said(label, "for") for label in page.all("label[for]")}
    within = {one.mem_id for one in page.all("label input, label select, label textarea")}
    for one in fields:
        if not (_named(one) or said(one, "id") in labelled - {""} or one.mem_id in within):
            yield Found("serious", "This field has no label.", one)


@check("accessibility", 6, "Links and buttons say what they do", "Screen readers list them without the text around.")
def link_names(page: Page) -> Iterator[Found]:
    links = [one for one in page.all("a[href], button") if not _hidden(one)]
    if not links:
        raise DoesNotApply
    for link in links:
        text = " ".join(link.text().split())
        if not text and not _named(link) and not any(_named(one) or said(one, "alt") for one in link.css(NAMED)):
            yield Found("serious", f"This {'link' if link.tag == 'a' else 'button'} has no text.", link)
        elif link.tag == "a" and text.lower().rstrip(" .!»>→") in VAGUE and not said(link, "aria-label"):
            yield Found("minor", f"“{text}” does not say where this link leads.", link)


@check(
    "accessibility",
    4,
    "Headings are in order",
    "People jump from heading to heading; a skipped level looks like a lost part.",
)
def heading_order(page: Page) -> Iterator[Found]:
    headings = page.all("h1, h2, h3, h4, h5, h6")
    if not headings:
        raise DoesNotApply
    before = 0
    for heading in headings:
        level = int(str(heading.tag)[1])
        if before and level > before + 1:
            yield Found("moderate", f"An h{level} follows an h{before}.", heading)
        before = level


@check("accessibility", 4, "Each id is there once", "Labels and links within the page find the first one only.")
def duplicate_ids(page: Page) -> Iterator[Found]:
    nodes = [(said(node, "id"), node) for node in page.all("[id]")]
    if not nodes:
        raise DoesNotApply
    counted = Counter(id for id, _ in nodes)
    seen: set[str] = set()
    for id, node in nodes:
        if id and counted[id] > 1 and id not in seen:
            seen.add(id)
            yield Found("moderate", f"{counted[id]} elements have the id {id:.60}.", node)


def _hidden(node: LexborNode) -> bool:
    """From everybody, or from those who listen."""
    return said(node, "aria-hidden").lower() == "true" or "hidden" in node.attributes


def _named(node: LexborNode) -> bool:
    return bool(said(node, "aria-label") or said(node, "aria-labelledby") or said(node, "title"))
