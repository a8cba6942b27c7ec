from __future__ import annotations

from importlib import import_module

import pytest

from tests.contract.on_rows import LEFT_OUT


@pytest.mark.parametrize("module", LEFT_OUT)
def test_what_is_left_out_on_rows_is_there(module: str) -> None:
    tests = vars(import_module(f"tests.contract.{module}"))
    assert {name.partition(" ")[0] for name in LEFT_OUT[module]} <= tests.keys()
