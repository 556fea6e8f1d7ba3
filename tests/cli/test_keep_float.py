# SPDX-License-Identifier: BSD-3-Clause
"""``--keep-float``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openneutron.cli import main
from tests.support.litert_files import int16_file


def test_a_layer_kept_float(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "resnet8", "-o", str(tmp_path / "out.pte"), "--json", "--quiet", "--keep-float"]
    assert main([*command, "fc,aten.softmax.int"]) == 0
    text = json.dumps(json.loads(capsys.readouterr().out))
    assert "keep_float 'fc' keeps it float" in text
    assert "keep_float 'aten.softmax.int' keeps it float" in text
    assert main([*command, "fcc"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("keep_float 'fcc': the model has no such module name. Did you mean 'fc'?")
    )


def test_it_is_for_float_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(int16_file(0.1))
    assert main(["compile", str(file), "--keep-float", "fc"]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(
            "--keep-float: it is for float models; 'model.tflite' is quantized and has its own types. Leave it out."
        )
    )
