"""The option that writes the golden files anew: ``pytest tests/golden --update-golden``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", default=False, help="write the golden files anew"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # In a run of all tests this file is read after the command line, and the option does not exist.
    return bool(request.config.getoption("--update-golden", default=False))
