# SPDX-License-Identifier: BSD-3-Clause
"""A bundle for a Cortex-M33 builds as it is, runs in QEMU and checks itself."""

from __future__ import annotations

import re
from pathlib import Path

from openneutron.export import export_bundle
from tests.export.bundles import built, cifarnet, compiled_tflite, run


def sections(said: str) -> dict[str, int]:
    """The table that ends a build: words and bytes."""
    table = said.partition("Memory of the example, bytes\n")[2]
    return {words: int(size) for size, words in re.findall(r"^ +(\d+)  +(\S.*)$", table, re.MULTILINE)}


def test_cifarnet_builds_and_checks_itself(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    bundle = export_bundle(cifarnet(), folder)
    memory = sections(built(folder, "-DOPENNEUTRON_WERROR=ON"))
    assert memory["microcode and weights"] == bundle.memory["microcode"] + bundle.memory["weights"]
    assert 0 <= memory["arena and prefetch buffer"] - bundle.memory["arena"] <= 32
    assert memory["flash"] == sum(
        memory[part]
        for part in (
            "code, constants, startup",
            "microcode and weights",
            "golden inputs and outputs (the example's alone)",
        )
    )
    linked = set(re.findall(r"^ \.text\.(\w+_s8)_run$", (folder / "build" / "example.map").read_text(), re.MULTILINE))
    assert linked == {kernel.partition(":")[0] for kernel in bundle.kernels}
    done = run(folder)
    assert done.returncode == 0, done.stderr
    (stack,) = re.findall(r"stack used: (\d+) bytes", done.stdout + done.stderr)
    assert int(stack) < 4096
    said = re.sub(r"\d+ bytes\npassed", "N bytes\npassed", done.stdout + done.stderr)
    assert said == "cifarnet\noutput0: 10 of 10 bytes as expected\nstack used: N bytes\npassed\n"

    golden = folder / "example" / "golden_output0.bin"
    spoiled = bytearray(golden.read_bytes())
    spoiled[3] ^= 1
    golden.write_bytes(spoiled)
    built(folder)
    done = run(folder)
    assert done.returncode == 1
    assert "output0: 9 of 10 bytes as expected\n" in done.stdout + done.stderr


def test_constants_are_fetched_from_flash(shared_models: Path, tmp_path: Path) -> None:
    model = tmp_path / "kws.tflite"
    model.write_bytes(compiled_tflite(shared_models / "mlperf_tiny_kws_int8.tflite", fetch_constants_to_sram=True))
    bundle = export_bundle(model, tmp_path / "bundle")
    assert bundle.memory["prefetch"] > 0
    memory = sections(built(tmp_path / "bundle"))
    assert memory["arena and prefetch buffer"] >= bundle.memory["arena"] + bundle.memory["prefetch"]
    done = run(tmp_path / "bundle")
    assert done.returncode == 0, done.stdout + done.stderr
