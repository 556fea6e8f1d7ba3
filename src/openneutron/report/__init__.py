# SPDX-License-Identifier: BSD-3-Clause
"""What a compile came to, for people and for programs."""

from openneutron.report.summary import ConvertedSummary, Delegated, PartitionSummary, Summary, of_compiled_file

__all__ = ["ConvertedSummary", "Delegated", "PartitionSummary", "Summary", "of_compiled_file"]
