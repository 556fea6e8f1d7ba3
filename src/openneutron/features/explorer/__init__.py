# SPDX-License-Identifier: BSD-3-Clause
"""Google's Model Explorer opens compiled files: ``model-explorer --extensions=openneutron.features.explorer
model.pte``.

``main`` has the classes that Model Explorer looks for, and requires the package ai-edge-model-explorer. The other
modules do not.
"""
