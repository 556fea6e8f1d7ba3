# SPDX-License-Identifier: BSD-3-Clause
"""The report of a compile as one HTML page that opens offline, and its charts as pictures."""
