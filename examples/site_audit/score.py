"""The score: what each finding costs. All weights are here and beside the checks, and shown with each result."""

from __future__ import annotations

from collections.abc import Iterable

from examples.site_audit.check import CHECKS, Category, Outcome, Severity

# What a category counts in the overall score.
CATEGORIES: dict[Category, int] = {"performance": 30, "seo": 25, "accessibility": 25, "security": 20}
# A check that applies gives its weight, less this part of it for the worst that it found.
COSTS: dict[Severity, float] = {"critical": 1.0, "serious": 0.75, "moderate": 0.5, "minor": 0.25, "info": 0.0}


def points(outcome: Outcome) -> float:
    """From 0 to 1."""
    return 1.0 - max((COSTS[finding.severity] for finding in outcome.findings), default=0.0)


def category_scores(outcomes: Iterable[Outcome]) -> dict[Category, int]:
    """From 0 to 100, for each category that has a check that applies."""
    reached: dict[Category, float] = {}
    possible: dict[Category, int] = {}
    for outcome in outcomes:
        if outcome.applies:
            check = CHECKS[outcome.check]
            reached[check.category] = reached.get(check.category, 0.0) + check.weight * points(outcome)
            possible[check.category] = possible.get(check.category, 0) + check.weight
    return {
        category: round(100 * reached[category] / possible[category]) for category in CATEGORIES if category in possible
    }


def overall(scores: dict[Category, int]) -> int:
    """The mean by weight of the categories that are there."""
    weights = sum(CATEGORIES[category] for category in scores)
    return round(sum(CATEGORIES[category] * score for category, score in scores.items()) / weights)
