# SPDX-License-Identifier: BSD-3-Clause
"""The advice of reports and the lines of pareto, each followed by the compile that it names."""
