"""What a daemon exports before it has done anything, once for all tests."""

from __future__ import annotations

import pytest
from prometheus_client import Metric

from deploy.metrics_reference import exported as export


@pytest.fixture(scope="session")
def exported() -> list[Metric]:
    return export()
