"""A crawl is killed at random moments: every page that can be reached is stored once, and the pause between requests is
never undercut. Here on a small tree; `make chaos-crawl` does it on a real one, with twenty kills."""

from __future__ import annotations

import random
from pathlib import Path

from holdfast import Holdfast
from tests.examples.crawl.killing import crawl_and_kill
from tests.examples.crawl.site import page
from tests.examples.crawl.walk import reachable

PAGES = 120
DELAY = 0.02


def a_tree(folder: Path, seed: int) -> Path:
    """Folders of pages with links of many spellings, and a few pages that nothing leads to."""
    chance = random.Random(seed)
    names = [f"{'d/' * (n % 3)}p{n}.html" for n in range(PAGES)]
    for n, name in enumerate(names):
        up = "../" * name.count("/")
        # Each leads to its next ones, so that all can be reached, and to some others.
        further = [names[m] for m in (2 * n + 1, 2 * n + 2) if m < PAGES] + chance.sample(names, 3)
        links = [up + other if chance.random() < 0.5 else f"/{other}#part" for other in further]
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(*links, "gone.html", "picture.png", "mailto:somebody@tree.example", title=f"Page {n}"))
    (folder / "orphan.html").write_text(page("/p0.html"))
    return folder


def test_killed_at_random_moments_it_stores_every_page_once_and_keeps_its_pauses(
    hf: Holdfast, url: str, tmp_path: Path
) -> None:
    folder = a_tree(tmp_path / "tree", seed=7)
    assert len(reachable(folder, "/p0.html")) == PAGES
    verdict = crawl_and_kill(folder, "/p0.html", url, tmp_path, kills=3, seed=7, delay=DELAY)
    log = (tmp_path / "workers.log").read_text()
    assert verdict.status == "completed", log
    assert (verdict.missed, verdict.wrong) == ([], []), log
    assert verdict.pages == PAGES
    assert verdict.kills == {"runner": 1, "worker": 1, "both": 1}
    assert verdict.failures > 0, "the site was not easy"
    assert verdict.shortest_gap >= DELAY
    # A kill repeats the request that was under way, and no other.
    addresses = PAGES + 5  # robots.txt, a sitemap that is not there, gone.html and picture.png in their folders
    assert verdict.requests <= addresses + 4 + verdict.failures + 3 * 2
