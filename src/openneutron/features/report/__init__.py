# SPDX-License-Identifier: BSD-3-Clause
"""The figures of a compile, for people and for programs."""

from openneutron.features.report.summary import ConvertedSummary, Delegated, PartitionSummary, Summary, of_compiled_file

__all__ = ["ConvertedSummary", "Delegated", "PartitionSummary", "Summary", "of_compiled_file"]
