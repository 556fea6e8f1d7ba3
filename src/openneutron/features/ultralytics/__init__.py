# SPDX-License-Identifier: BSD-3-Clause
"""Compiled programs in a folder that Ultralytics predicts with: ``YOLO(folder).predict(...)`` and ``.val(...)`` on the simulated NPU.

The folder has the form of Ultralytics' own export to ExecuTorch, a ``.pte`` and ``metadata.yaml`` in a folder whose name ends with
``_executorch_model``, so that nothing of Ultralytics is changed. Its backend runs the ``.pte`` in ExecuTorch's Python runtime, where
``simulate`` registers the simulated NPU.
"""

from openneutron.features.ultralytics.folder import SUFFIX, export, simulate, write

__all__ = ["SUFFIX", "export", "simulate", "write"]
