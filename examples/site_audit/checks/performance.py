"""How soon a page is there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from examples.safe_http import Reply
from examples.site_audit.check import DoesNotApply, Found, Severity, check, moment
from examples.site_audit.page import LARGEST, Page, said

SMALLEST_WORTH_PACKING = 1_400  # bytes: what fits into one packet gains nothing
PACKED_KINDS = re.compile(r"text/|application/((x-)?javascript|json|xml|[\w.-]+\+(json|xml))|image/svg\+xml")
SCRIPTS = ("", "text/javascript", "application/javascript")  # modules wait by themselves; others are data
LONG_ENOUGH = 7 * 24 * 3600  # seconds that a file should be kept for


@check("performance", 8, "The server answers soon", "Nothing at all can be shown before the first reply.")
def response_time(page: Page) -> Iterator[Found]:
    seconds = page.reply.seconds
    if seconds > 0.8:
        yield Found("serious" if seconds > 2 else "moderate", f"The page took {seconds:.1f} s; 0.8 s is good.")


@check("performance", 5, "No detours", "Each redirect costs a round trip before anything else can happen.")
def redirects(page: Page) -> Iterator[Found]:
    hops = len(page.chain) - 1
    if hops > 1:
        way = " → ".join(str(reply.url) for reply in page.chain)
        yield Found("serious" if hops > 3 else "moderate", f"{hops} redirects on the way to the page: {way}")
    if page.refresh is not None:
        node, url = page.refresh
        yield Found("moderate", f"The page sends its readers on to {url}: a redirect of the server's is quicker.", node)


@check("performance", 8, "The page is light", "Weight is time and money, above all on phones.")
def page_weight(page: Page) -> Iterator[Found]:
    weight = page.reply.sent + sum(file.reply.sent if file.reply else LARGEST * file.too_large for file in page.files)
    if weight > 1_000_000:
        heavy: Severity = "serious" if weight > 3_000_000 else "moderate"
        yield Found(heavy, f"Page, scripts, styles and pictures are {weight / 1e6:.1f} MB; 1 MB is good.")
    for file in page.files:
        if file.too_large:
            yield Found("serious", f"This file has more than {LARGEST / 1e6:g} MB.", file.element)


@check("performance", 7, "Text is sent compressed", "HTML, styles and scripts shrink to about a quarter.")
def compression(page: Page) -> Iterator[Found]:
    sent: list[tuple[Reply, int, str | None]] = [(page.reply, len(page.reply.body), None)]
    sent += [(file.reply, file.size, file.element) for file in page.files if file.reply]
    worth = [one for one in sent if PACKED_KINDS.match(one[0].kind) and one[1] >= SMALLEST_WORTH_PACKING]
    if not worth:
        raise DoesNotApply
    for reply, size, element in worth:
        if reply.headers.get("content-encoding", "identity").strip().lower() == "identity":
            severe: Severity = "serious" if element is None else "moderate"
            yield Found(severe, f"{reply.url} is sent as it is: {size:,} bytes.", element)


@check("performance", 5, "Files are kept by browsers", "What is kept need not be sent again with the next page.")
def caching(page: Page) -> Iterator[Found]:
    files = [file for file in page.files if file.reply]
    if not files:
        raise DoesNotApply
    for file in files:
        assert file.reply is not None
        control = file.reply.headers.get("cache-control", "").lower()
        age = re.search(r"max-age\s*=\s*\"?(\d{1,12})", control)
        if "no-store" in control or "no-cache" in control:
            yield Found("moderate", f"{file.reply.url} may not be kept ({control:.60}).", file.element)
        elif age is None and (moment(file.reply.headers.get("expires", "")) or 0) < time.time():
            yield Found("moderate", f"{file.reply.url} does not say how long it may be kept.", file.element)
        elif age is not None and int(age[1]) < LONG_ENOUGH and "immutable" not in control:
            yield Found("minor", f"{file.reply.url} may be kept for {int(age[1]):,} s only.", file.element)


@check(
    "performance", 6, "Scripts don't hold up the page", "A plain script in the head stops the page until it has run."
)
def blocking_scripts(page: Page) -> Iterator[Found]:
    scripts = [one for one in page.all("head > script[src]") if said(one, "type").lower() in SCRIPTS]
    if not scripts:
        raise DoesNotApply
    for script in scripts:
        if not {"async", "defer"} & script.attributes.keys():
            yield Found("moderate", "This script in the head has neither async nor defer.", script)


@check("performance", 3, "Pictures have their size", "Without width and height the text jumps as pictures arrive.")
def image_sizes(page: Page) -> Iterator[Found]:
    images = page.all("img")
    if not images:
        raise DoesNotApply
    for image in images:
        style = said(image, "style").lower()
        sized = all(name in image.attributes or name in style for name in ("width", "height"))
        if not sized and "aspect-ratio" not in style:
            yield Found("minor", "This picture does not say how large it is.", image)
