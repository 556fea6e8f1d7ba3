# SPDX-License-Identifier: BSD-3-Clause
"""A folder to add to ``sys.path``; see ``openneutron.features.compat.eiq_neutron_sdk.SEARCH_PATH``."""
