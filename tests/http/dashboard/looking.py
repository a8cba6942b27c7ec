"""Looks at pages of the dashboard, and sends their forms, as a browser without a script does."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.model.access import Role
from tests.http.asking import Ask


@dataclass
class Seen:
    """A page: `text` is what one reads, `said` what became of the form that led there, `wrong`: it was refused."""

    status: int
    path: str
    html: str
    said: str = ""
    wrong: bool = False

    @property
    def text(self) -> str:
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    def rows(self) -> dict[str, str]:
        """What one reads in each row of a list, by its id."""
        found = re.findall(r'<tr id="([^"]*)".*?</tr>', self.html, re.DOTALL)
        return {id: Seen(200, "", re.findall(rf'<tr id="{id}".*?</tr>', self.html, re.DOTALL)[0]).text for id in found}

    def element(self, id: str) -> str:
        """What one reads in an element that has no others of its kind within."""
        found = re.search(rf'<(\w+)[^>]* id="{id}"[^>]*>(.*?)</\1>', self.html, re.DOTALL)
        assert found is not None, f"there is no {id}"
        return html.unescape(re.sub(r"<[^>]*>", "", found[2]))

    def link(self, text: str) -> str:
        """Where a link leads, from the root."""
        for href, inner in re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', self.html, re.DOTALL):
            if " ".join(re.sub(r"<[^>]*>", " ", inner).split()) == text:
                return urljoin(self.path, html.unescape(href))
        raise AssertionError(f"there is no link {text!r}")

    def field(self, name: str) -> str:
        """The value of a form's field."""
        found = re.search(rf'<input[^>]* name="{name}"[^>]* value="([^"]*)"', self.html)
        assert found is not None, f"there is no field {name}"
        return html.unescape(found[1])


class Looking:
    def __init__(self, app: Holdfast, role: Role = "operator") -> None:
        self._ask = Ask(app.asgi(open=role))

    def at(self, path: str, **query: str) -> Seen:
        answer = self._ask.get(path, params=query or None)
        return Seen(answer.status_code, path, answer.text)

    def send(self, path: str, **form: str | list[str]) -> Seen:
        """Send a form, and look at the page that follows."""
        return self.followed(path, self._ask.post(path, data=form))

    def followed(self, path: str, answer: httpx2.Response) -> Seen:
        if answer.status_code != 303:
            return Seen(answer.status_code, path, answer.text)
        said, wrong = "", False
        if cookie := answer.cookies.get("holdfast_said"):
            said, wrong = json.loads(base64.urlsafe_b64decode(cookie))
        to = urljoin(path, answer.headers["location"])
        there = self._ask.get(to)
        return Seen(there.status_code, to, there.text, said, wrong)


@pytest.fixture
def looking(tasked: Holdfast) -> Looking:
    """An operator."""
    return Looking(tasked)


@pytest.fixture
def viewing(tasked: Holdfast) -> Looking:
    """Somebody who may only look."""
    return Looking(tasked, "viewer")
