# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for torchvision, of which the tests' machines have no build: what Ultralytics asks for to compile, predict and validate.

It has ``ops.nms``, ``ops.box_iou`` and the transforms of a classifier's pictures. It leaves out all models, data sets (Ultralytics' ``val``
and ``train`` of classifiers use ``datasets.ImageFolder``), augmentations, picture files and all other operators.
"""

from torchvision import ops, transforms

__version__ = "0.28.0"

__all__ = ["__version__", "ops", "transforms"]
