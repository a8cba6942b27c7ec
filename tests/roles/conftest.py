from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.settings import Settings
from tests.roles.places import Roles, roles_of
from tests.servers import new_schema, shared_postgres


@pytest.fixture
def roles() -> Iterator[Roles]:
    with roles_of(Settings(url=shared_postgres(), schema=new_schema())) as roles:
        yield roles


@pytest.fixture(scope="module")
def kept_roles() -> Iterator[Roles]:
    """For tests that put everything back."""
    with roles_of(Settings(url=shared_postgres(), schema=new_schema())) as roles:
        yield roles
