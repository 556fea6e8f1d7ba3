# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the driver's tests."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref

import pytest

from openneutron.device.simulator import library
from tests.support import programs
from tests.support.c_api import Config, Port, Prepared


@pytest.fixture
def prepared() -> Iterator[Prepared]:
    """``programs.inverted_twice``, prepared."""
    model = Prepared(programs.inverted_twice())
    assert model.status == 0
    yield model
    model.close()


@pytest.fixture
def port() -> Iterator[Port]:
    """A port to fill; the host's is put back afterwards, and the NPU is on."""
    yield Port()
    library().neutronSetPort(library().neutron_host_port())
    library().neutronInit()


@pytest.fixture
def config() -> Iterator[Config]:
    """Copy callbacks to fill; the driver's own come back afterwards."""
    yield Config()
    library().neutronSetConfig(byref(Config()))
