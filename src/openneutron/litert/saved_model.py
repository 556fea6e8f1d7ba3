# SPDX-License-Identifier: BSD-3-Clause
"""Read TensorFlow SavedModels, which TensorFlow converts in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from openneutron.errors import InvalidModelError
from openneutron.litert.read import LiteRTModel, read

CONVERSION = "tf.lite.TFLiteConverter.from_saved_model({source}).convert()"

LONGEST_WORDS = 200


def read_saved_model(path: Path) -> LiteRTModel:
    """Return the float model in a folder of TensorFlow's ``tf.saved_model.save`` or Keras' ``export``.

    Raises InvalidModelError where TensorFlow is not installed, with the line that converts the model elsewhere, and where TensorFlow
    can't convert it.
    """
    if find_spec("tensorflow") is None:
        raise InvalidModelError(
            f"'{path}' is a TensorFlow SavedModel, and TensorFlow is not installed here. Make a .tflite of it where TensorFlow is, and "
            f"compile that: {command_for(path)}"
        )
    return read(_converted(str(path.resolve()), (path / "saved_model.pb").stat().st_mtime_ns))


def command_for(path: Path) -> str:
    """Return the shell command that makes a ``.tflite`` of a SavedModel where TensorFlow is installed."""
    conversion = CONVERSION.format(source=repr(str(path)))
    return f"python -c \"import tensorflow as tf; open('{path.name}.tflite', 'wb').write({conversion})\""


@lru_cache(maxsize=1)
def _converted(path: str, _changed: int) -> bytes:
    """Return the bytes of a ``.tflite``. A command reads a model several times, and a conversion takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "made.tflite"
        conversion = CONVERSION.format(source="sys.argv[1]")
        script = f"import sys, tensorflow as tf; open(sys.argv[2], 'wb').write({conversion})"
        done = subprocess.run(
            [sys.executable, "-c", script, path, str(result)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not result.exists():
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it ended without a word"]
            raise InvalidModelError(f"'{path}': TensorFlow can't convert it: {lines[-1][:LONGEST_WORDS]}")
        return result.read_bytes()
