# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of compiled models: the events of a run, their table, and the modelled schedule as a trace."""

from openneutron.features.profile.profile import delegate_time_scale_converter, parse_delegate_metadata

__all__ = ["delegate_time_scale_converter", "parse_delegate_metadata"]
