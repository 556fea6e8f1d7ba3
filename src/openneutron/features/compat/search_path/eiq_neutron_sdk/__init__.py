# SPDX-License-Identifier: BSD-3-Clause
"""A module that replaces itself by ``openneutron.features.compat.eiq_neutron_sdk`` when it is imported."""

import sys

del sys.modules[__name__]

from openneutron.features.compat.eiq_neutron_sdk import install  # noqa: E402

install()
