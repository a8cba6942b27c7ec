from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from examples.claim_check.model import Model, ModelConfig
from tests.examples.claim_check.application import ask, hf, sql, start, url
from tests.examples.claim_check.standin import StandIn

__all__ = ["ask", "hf", "sql", "start", "url"]

KEY = "sk-a-secret"


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.fixture(params=["chat", "responses"])
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def a_model(standin: StandIn, shape: str) -> Callable[..., Model]:
    """Talks to the stand-in; its delays between tries are short."""

    def build(timeout: float = 10.0, **options: str) -> Model:
        return Model(ModelConfig(standin.url, KEY, shape=shape, timeout=timeout, delay_unit=0.01, **options))

    return build


@pytest.fixture
def model(a_model: Callable[..., Model]) -> Model:
    return a_model()
