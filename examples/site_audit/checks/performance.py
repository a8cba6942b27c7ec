"""How soon a page is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from examples.safe_http import LARGEST
from examples.site_audit.check import DoesNotApply, Found, Severity, check
from examples.site_audit.page import Page, said

SMALLEST_WORTH_PACKING = 1_400  # bytes: what fits into one packet gains nothing
PACKED_KINDS = re.compile(r"text/|application/(javascript|json|xml|xhtml\+xml)|image/svg\+xml")
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
    text = [(page.reply, None), *((file.reply, file.element) for file in page.files if file.reply)]
    worth = [
        (reply, node)
        for reply, node in text
        if PACKED_KINDS.match(reply.kind) and len(reply.body) >= SMALLEST_WORTH_PACKING
    ]
    if not worth:
        raise DoesNotApply
    for reply, node in worth:
        if reply.headers.get("content-encoding", "identity") == "identity":
            severe: Severity = "serious" if node is None else "moderate"
            yield Found(severe, f"{reply.url} is sent as it is: {len(reply.body):,} bytes.", node)


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
        elif age is None and "expires" not in file.reply.headers:
            yield Found("moderate", f"{file.reply.url} does not say how long it may be kept.", file.element)
        elif age is not None and int(age[1]) < LONG_ENOUGH and "immutable" not in control:
            yield Found("minor", f"{file.reply.url} may be kept for {int(age[1]):,} s only.", file.element)


@check(
    "performance", 6, "Scripts don't hold up the page", "A plain script in the head stops the page until it has run."
)
def blocking_scripts(page: Page) -> Iterator[Found]:
    scripts = page.all("head script[src]")
    if not scripts:
        raise DoesNotApply
    for script in scripts:
        if not {"async", "defer"} & script.attributes.keys() and said(script, "type").lower() != "module":
            yield Found("moderate", "This script in the head has neither async nor defer.", script)


@check("performance", 3, "Pictures have their size", "Without width and height the text jumps as pictures arrive.")
def image_sizes(page: Page) -> Iterator[Found]:
    images = page.all("img")
    if not images:
        raise DoesNotApply
    for image in images:
        if not {"width", "height"} <= image.attributes.keys() and "aspect-ratio" not in said(image, "style"):
            yield Found("minor", "This picture does not say how large it is.", image)
