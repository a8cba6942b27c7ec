"""What a tier of an audit gives: the outcomes of its checks, and facts that are shown beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import examples.site_audit.checks  # noqa: F401 - they declare themselves
from examples.crawl.robots import LARGEST as LARGEST_ROBOTS
from examples.site_audit.check import CHECKS, ON_PAGES, Category, Finding, Outcome, outcome
from examples.site_audit.page import HTML, Page
from examples.site_audit.score import category_scores, overall, points


@dataclass(frozen=True)
class Tier:
    outcomes: list[Outcome] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What goes into the columns of the result."""

    site: str
    score: int
    scores: dict[Category, int]
    findings: list[Finding]
    details: dict[str, Any]


UNSHOWN = ("robots", "readable")  # facts for later tiers
ORDER = ("critical", "serious", "moderate", "minor", "info")


def static_tier(page: Page) -> Tier:
    """All checks that need the page alone."""
    readable = page.reply.status == 200 and page.reply.kind in HTML
    names = ON_PAGES if readable else ["status"]
    facts = {
        "final_url": str(page.url), "readable": readable, "status": page.reply.status, "redirects": len(page.chain) - 1,
        "seconds": round(page.reply.seconds, 3), "bytes": page.reply.sent,
        "robots": page.robots.text[:LARGEST_ROBOTS] if page.robots is not None else "",
    }  # fmt: skip
    return Tier([outcome(CHECKS[name], ON_PAGES[name](page)) for name in names], facts)


def report(site: str, tiers: dict[str, Tier]) -> Report:
    outcomes = [outcome for tier in tiers.values() for outcome in tier.outcomes]
    scores = category_scores(outcomes)
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    findings.sort(key=lambda finding: (ORDER.index(finding.severity), -CHECKS[finding.check].weight))
    facts = {name: value for tier in tiers.values() for name, value in tier.facts.items() if name not in UNSHOWN}
    return Report(
        site, overall(scores), scores, findings, {"facts": facts, "checks": [_shown(one) for one in outcomes]}
    )


def _shown(outcome: Outcome) -> dict[str, Any]:
    check = CHECKS[outcome.check]
    return {
        "check": check.name, "category": check.category, "weight": check.weight, "title": check.title, "why": check.why,
        "applies": outcome.applies, "points": points(outcome) if outcome.applies else None,
        "findings": len(outcome.findings),
    }  # fmt: skip
