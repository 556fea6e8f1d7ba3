# SPDX-License-Identifier: BSD-3-Clause
"""Ultralytics' detectors and classifiers: their files, their heads, and the steps from heads to boxes."""
