"""Asks the model, and tries again where that can help.

How long a question takes at most, with all waiting, is known beforehand: `ModelConfig.longest_ask`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from examples.claim_check import wire
from examples.claim_check.deadline import Connections, within
from examples.claim_check.report import Citation
from examples.claim_check.urls import is_web_address

DELAYS = (1.0, 2.0)  # before the second and the third try
LONGEST_WAIT = 30.0  # seconds: what a server's Retry-After may make us wait between two tries
LONGEST_TIMEOUT = 60.0  # seconds for one try, at most
LARGEST_REPLY = 1_000_000  # bytes


class ModelError(Exception):
    """The model gave no answer. `permanent`: it won't give one to the next attempt either. `again`: another try can
    help, and `retry_after` is when the server wants it, in seconds. `calls`: how often it was asked."""

    def __init__(
        self, code: str, reason: str, permanent: bool, *, again: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.permanent = permanent
        self.again = again
        self.retry_after = retry_after
        self.calls = 1


@dataclass(frozen=True, repr=False)
class ModelConfig:
    base_url: str
    key: str = ""
    model: str = "sonar-pro"  # "preset:NAME" asks for a preset, where the server has them
    shape: str = "chat"  # or "responses"
    timeout: float = LONGEST_TIMEOUT  # seconds for one try, from the name lookup to the last byte
    delay_unit: float = 1.0  # seconds; tests wait less

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ModelConfig:
        """From CLAIM_CHECK_MODEL_URL, _KEY, _NAME, _SHAPE, _TIMEOUT and _DELAY_UNIT; only the first is required."""

        def given(name: str, default: str) -> str:
            return environ.get(f"CLAIM_CHECK_MODEL_{name}") or default

        return cls(
            base_url=given("URL", ""),
            key=given("KEY", cls.key),
            model=given("NAME", cls.model),
            shape=given("SHAPE", cls.shape),
            timeout=_seconds("TIMEOUT", given("TIMEOUT", str(cls.timeout))),
            delay_unit=_seconds("DELAY_UNIT", given("DELAY_UNIT", str(cls.delay_unit))),
        )

    def __repr__(self) -> str:
        return f"<ModelConfig {self.model} at {self.base_url}, {self.shape}>"

    def __post_init__(self) -> None:
        if not is_web_address(self.base_url):
            raise ValueError(f"CLAIM_CHECK_MODEL_URL is the address of the model's API, not {self.base_url!r}")
        if self.shape not in wire.PATHS:
            raise ValueError(f"CLAIM_CHECK_MODEL_SHAPE is {' or '.join(wire.PATHS)}, not {self.shape!r}")
        if not self.key.isascii() or not (self.key or "-").isprintable():
            raise ValueError("CLAIM_CHECK_MODEL_KEY has a character that no HTTP header can carry")
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise ValueError(f"CLAIM_CHECK_MODEL_TIMEOUT is at most {LONGEST_TIMEOUT:g} seconds, not {self.timeout:g}")
        if not 0 <= self.delay_unit <= 1:
            raise ValueError(f"CLAIM_CHECK_MODEL_DELAY_UNIT is at most 1 second, not {self.delay_unit:g}")

    @property
    def tries(self) -> int:
        return 1 + len(DELAYS)

    @property
    def longest_ask(self) -> float:
        """Seconds that `Model.ask` takes at most."""
        return self.tries * self.timeout + sum(max(delay * self.delay_unit, LONGEST_WAIT) for delay in DELAYS)


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"CLAIM_CHECK_MODEL_{name} is a number of seconds, not {text!r}") from None


@dataclass(frozen=True)
class Answer:
    text: str
    citations: tuple[Citation, ...]  # those the server names beside the text
    model: str
    latency_ms: int = 0  # of all calls, without our own waiting between them
    calls: int = 1
    cut: bool = False  # the server stopped the model before its end


class Model:
    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def ask(self, messages: list[dict[str, str]]) -> Answer:
        """The model's answer, or ModelError. A message has `role` and `content`, and may have an `image_url`."""
        latency_ms = 0
        for calls, delay in enumerate((*DELAYS, None), start=1):
            started = time.monotonic()
            try:
                answer = within(self.config.timeout, lambda connections: self._call(messages, connections))
            except ModelError as error:
                failed = error
            except TimeoutError:
                reason = f"no whole answer came within {self.config.timeout:g} seconds"
                failed = ModelError("MODEL_TIMEOUT", reason, permanent=False, again=True)
            else:
                return replace(answer, calls=calls, latency_ms=latency_ms + _milliseconds_since(started))
            latency_ms += _milliseconds_since(started)
            failed.calls = calls
            wait = max((delay or 0) * self.config.delay_unit, failed.retry_after or 0)
            if delay is None or not failed.again or wait > LONGEST_WAIT:
                raise failed
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def __repr__(self) -> str:
        return f"<Model {self.config.model} at {self.config.base_url}>"

    def _call(self, messages: list[dict[str, str]], connections: Connections) -> Answer:
        """One request and its answer."""
        headers = {"Authorization": f"Bearer {self.config.key}"} if self.config.key else {}
        url = self.config.base_url.rstrip("/") + wire.PATHS[self.config.shape]
        request: dict[str, Any] = {
            "json": wire.request(self.config.shape, self.config.model, messages),
            "extensions": {"trace": connections},
        }
        try:
            with (
                # It tries once: `retries` of httpx2's transport are 0 by default.
                httpx2.Client(timeout=self.config.timeout, headers=headers) as client,
                client.stream("POST", url, **request) as response,
            ):
                body = _read(response)
        except httpx2.TimeoutException as error:
            reason = f"no answer came in time ({type(error).__name__})"
            raise ModelError("MODEL_TIMEOUT", reason, permanent=False, again=True) from None
        except httpx2.TransportError as error:
            reason = f"the connection to the model failed: {error or type(error).__name__}"
            raise ModelError("MODEL_UNREACHABLE", reason, permanent=False, again=True) from None
        except httpx2.RequestError as error:
            raise _bad_reply(f"the reply can't be decoded: {error}") from None
        if response.status_code != 200:
            raise self._refusal(response, body)
        try:
            reply = wire.read(self.config.shape, body)
        except wire.NoAnswer as error:
            raise _bad_reply(str(error)) from None
        return Answer(reply.text, reply.citations, reply.model or self.config.model, cut=reply.cut)

    def _refusal(self, response: httpx2.Response, body: bytes) -> ModelError:
        status = response.status_code
        if self.config.key:  # some servers repeat it
            body = body.replace(self.config.key.encode(), b"(key)")
        said = wire.excerpt(body)
        reason = f"the model's server answers {status}: {said}"
        if status == 429 or status >= 500:
            code = "MODEL_RATE_LIMITED" if status == 429 else "MODEL_UNAVAILABLE"
            after = _retry_after(response.headers.get("retry-after", ""))
            return ModelError(code, reason, permanent=False, again=True, retry_after=after)
        if status in (301, 302, 303, 307, 308, 404, 410):
            return ModelError("MODEL_ENDPOINT_GONE", f"endpoint gone; {reason}", permanent=True)
        code = {401: "MODEL_UNAUTHORIZED", 403: "MODEL_FORBIDDEN"}.get(status, "MODEL_BAD_REQUEST")
        return ModelError(code, reason, permanent=True)


def _read(response: httpx2.Response) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LARGEST_REPLY:
            raise _bad_reply(f"the reply is larger than {LARGEST_REPLY:,} bytes")
    return body


def _bad_reply(reason: str) -> ModelError:
    return ModelError("MODEL_BAD_REPLY", reason, permanent=False)


def _retry_after(header: str) -> float | None:
    """Seconds from now; the header has them, or a date."""
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _milliseconds_since(started: float) -> int:
    return round(1000 * (time.monotonic() - started))
