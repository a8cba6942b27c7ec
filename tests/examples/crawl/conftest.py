from __future__ import annotations

from tests.examples.crawl.application import db, hf, start, url

__all__ = ["db", "hf", "start", "url"]
