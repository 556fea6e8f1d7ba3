# SPDX-License-Identifier: BSD-3-Clause
"""Detections of models with Ultralytics' output format: boxes in a picture, read from the outputs and drawn.

The format is described by the metadata of Ultralytics' exports: the task, the class names, the size of the input, and the layout of the outputs.
"""

from openneutron.features.detection.detections import Detections, Detector

__all__ = ["Detections", "Detector"]
