# SPDX-License-Identifier: BSD-3-Clause
"""Compare the accuracy of quantized ``.keras`` files with that of the same models' float ``.tflite`` files.

    PYTHON_WITH_TENSORFLOW -m tests.pytorch.keras_decibels make FOLDER
    python -m tests.pytorch.keras_decibels compare FOLDER

The first command needs TensorFlow alone. It writes models with random weights, each as ``.keras`` and, by TensorFlow's converter, as
``.tflite``. The second quantizes both forms with the same samples, and prints the ratio of the float results to their difference to the
quantized results, in dB, on other samples. The ``.tflite`` is quantized by AI Edge Quantizer. Both results are those of int8 arithmetic on the
CPU, which the NPU's equal (docs/explanation/exactness.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

EXTENT, WORDS, VOCABULARY = 96, 20, 100
CALIBRATION, COMPARED = 16, 16


def make(folder: Path) -> None:
    """Write the models. The variances and means of batch normalizations are those of random inputs."""
    import tensorflow as tf
    from tensorflow import keras

    keras.utils.set_random_seed(0)
    shape = (EXTENT, EXTENT, 3)

    def classifier(unroll: bool) -> keras.Model:
        layers = [keras.layers.Embedding(VOCABULARY, 16), keras.layers.GRU(24, unroll=unroll), keras.layers.Dense(4)]
        return keras.Sequential([keras.Input((WORDS,), dtype="int32"), *layers])

    models = {
        "mobilenet_v3_small": keras.applications.MobileNetV3Small(
            input_shape=shape, weights=None, classes=10, classifier_activation=None
        ),
        "efficientnet_v2_b0": keras.applications.EfficientNetV2B0(
            input_shape=shape, weights=None, classes=10, classifier_activation=None
        ),
        "gru_text": classifier(False),
    }
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        if (folder / f"{name}.tflite").exists():
            continue
        if len(model.input_shape) == 4:
            images = generator.uniform(0, 255, (64, *shape)).astype(np.float32)
            for _ in range(20):
                model(images, training=True)
        model.save(folder / f"{name}.keras")
        converted = model
        if name == "gru_text":  # the converter has no form of Keras' loop with a free batch
            converted = classifier(True)
            converted.set_weights(model.get_weights())
        converter = tf.lite.TFLiteConverter.from_keras_model(converted)
        (folder / f"{name}.tflite").write_bytes(converter.convert())


def samples(name: str, count: int, seed: int) -> list[np.ndarray]:
    """Return inputs of a model: pictures, or numbers of words."""
    generator = np.random.default_rng(seed)
    if name == "gru_text":
        return [generator.integers(0, VOCABULARY, (1, WORDS), np.int32) for _ in range(count)]
    return [generator.uniform(0, 255, (1, EXTENT, EXTENT, 3)).astype(np.float32) for _ in range(count)]


def decibels(exact: list[np.ndarray], found: list[np.ndarray]) -> float:
    """Return the ratio of signal to noise of all results together."""
    one, other = np.stack(exact).astype(np.float64), np.stack(found).astype(np.float64)
    return float(10 * np.log10((one**2).sum() / ((one - other) ** 2).sum()))


def compare(folder: Path) -> int:
    """Print a row for each model, and return 1 where a ``.keras`` file is more than 1 dB below its ``.tflite``."""
    import torch

    from openneutron.features.quantize import quantize
    from openneutron.features.quantize.pytorch import QuantizedModule
    from openneutron.litert.interpret import interpret
    from openneutron.pytorch.source.keras_file import read_keras

    below = 0
    for path in sorted(folder.glob("*.keras")):
        given, compared = samples(path.stem, CALIBRATION, 1), samples(path.stem, COMPARED, 2)
        made = quantize(path, calibration=[(torch.from_numpy(item),) for item in given])
        assert isinstance(made, QuantizedModule)
        real, own = read_keras(path).module(), made.program.module()

        def results(module: torch.nn.Module, compared: list[np.ndarray] = compared) -> list[np.ndarray]:
            with torch.no_grad():
                return [np.asarray(torch.utils._pytree.tree_leaves(module(torch.from_numpy(x)))[0]) for x in compared]

        exact = results(real)
        ours = decibels(exact, results(own))
        file = path.with_suffix(".tflite")
        stock, content = file.read_bytes(), quantize(file, calibration=given).to_bytes(".tflite")
        floats = [interpret(stock, [x])[0] for x in compared]
        theirs = decibels(floats, [interpret(content, [x])[0] for x in compared])
        apart = decibels(exact, floats)
        print(
            f"{path.stem:20} .keras {ours:5.1f} dB, .tflite {theirs:5.1f} dB; the two float models {apart:5.1f} dB",
            flush=True,
        )
        below += ours < theirs - 1
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[2])) if sys.argv[1] == "make" else compare(Path(sys.argv[2])))
