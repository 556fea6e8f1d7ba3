# SPDX-License-Identifier: BSD-3-Clause
"""A folder for ``sys.path``: see ``openneutron.features.compat.eiq_neutron_sdk.SEARCH_PATH``."""
