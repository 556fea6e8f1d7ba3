# SPDX-License-Identifier: BSD-3-Clause
"""Programs that take a camera's frames: the float model of frames, and the folding of its first steps."""
