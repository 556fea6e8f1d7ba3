# SPDX-License-Identifier: BSD-3-Clause
"""The boxes that a detector of Ultralytics' form finds in a picture: read from its results, and drawn.

The form is that of Ultralytics' exports, by their metadata: the task, the class names, the size of the input and what the results are.
"""

from openneutron.features.detection.detections import Detections, Detector

__all__ = ["Detections", "Detector"]
