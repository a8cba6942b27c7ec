"""`make pictures` takes minutes; that it leaves out no page is seen without."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import urlsplit

from holdfast.http.dashboard.pages import PAGES, page_at
from scripts.pictures.camera import BEST, SHOWN, SIZES, places


def test_every_page_is_pictured_and_the_best_are_small_and_there() -> None:
    taken = places(defaultdict(lambda: "7"))
    found = [page_at("/" + urlsplit(path).path) for path in taken.values()]
    assert {page.name for page, _ in filter(None, found)} == {page.name for page in PAGES}
    assert set(SHOWN) <= {f"{name}-{size}" for name in taken for size in SIZES}
    for name in SHOWN.values():
        assert 10_000 < (BEST / f"{name}.webp").stat().st_size < 100_000
