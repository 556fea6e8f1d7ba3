# SPDX-License-Identifier: BSD-3-Clause
"""Measurements beside the peers, each in one run: ``python -m bench [SECTION …]``."""
