"""What is generated in the documentation is what would be generated now."""

from __future__ import annotations

import re

from holdfast.model.lifecycle import TRANSITIONS, State
from scripts import guarantees, lifecycle, settings
from scripts.generated import fill_in


def test_the_picture_of_the_lifecycle_is_drawn_from_the_transitions() -> None:
    assert lifecycle.PICTURE.read_text() == lifecycle.picture(), "run: python -m scripts.lifecycle"


def test_the_tables_of_the_lifecycle_are_made_from_the_transitions() -> None:
    page = lifecycle.PAGE.read_text()
    assert page == fill_in(page, "transitions", lifecycle.tables()), "run: python -m scripts.lifecycle"


def test_every_state_and_verb_is_in_the_picture() -> None:
    words = set(re.findall(r"\w+", re.sub("<[^>]+>", " ", lifecycle.picture())))
    assert words == {*State, *TRANSITIONS}
    assert lifecycle.PLACES.keys() == set(State)
    assert lifecycle.WHO.keys() == TRANSITIONS.keys()


def test_the_guarantees_name_the_tests_that_catch_planted_bugs() -> None:
    page = guarantees.PAGE.read_text()
    assert page == fill_in(page, "guarantees", guarantees.promises()), "run: python -m scripts.guarantees"
    assert page == fill_in(page, "campaign", guarantees.campaign()), "run: python -m scripts.guarantees"


def test_the_settings_are_those_there_are() -> None:
    page = settings.PAGE.read_text()
    assert page == fill_in(page, "settings", settings.table()), "run: python -m scripts.settings"
