# SPDX-License-Identifier: BSD-3-Clause
"""Measure speech networks stage by stage: operators on the NPU, modelled time, real-time factor, memory and noise against float.

``python -m bench speech`` prints the table, ``python -m bench speech --page`` also writes it into docs/how-to/speech.md.
"""

from __future__ import annotations

import collections
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from bench import child
from bench.quantization_quality import sqnr
from bench.speech_stages import (
    FRAMES,
    SEED,
    SPEECH_HERTZ,
    SPEECH_HOP,
    STAGES,
    VOCABULARY,
    WINDOWS,
    Stage,
    Way,
    vocoder,
    whisper,
)
from openneutron.errors import OpenNeutronError
from openneutron.language.model import LanguageModel
from openneutron.language.sound import log_mel
from openneutron.language.times import phase
from openneutron.options import DRIVER, INT8, OPEN, CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.pytorch.windows import receptive_field, windows

TITLE = "Speech networks of transformers, random weights, by stage (modelled)"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "speech.md"
BEGIN, END = "<!-- python -m bench speech --page -->\n", "<!-- end -->\n"
LEFT = ("target", "type")

HEARD, HEARD_FRAMES = 8, 3000
"""The sounds that calibrate Whisper's decoder, each with a transcript of random tokens, and their frames."""


def figures(stage: Stage, way: Way) -> dict[str, Any]:
    """Return the figures of a stage: operators, jobs, milliseconds, SRAM, SQNR of each output in dB, and reasons of CPU fallbacks."""
    import openneutron

    target, converter, activations, budget = way
    model, given = stage.make()
    began = time.process_time()
    compiled = openneutron.compile(
        model,
        given[0],
        calibration=given[:-1],
        options=CompileOptions(target=target, converter=converter, sram_budget=budget),
        quantization=QuantizationOptions(activations=activations),
        delegation=DelegationOptions(must_delegate=False),
    )
    seconds = time.process_time() - began
    with torch.no_grad():
        real = pytree.tree_leaves(model(*given[-1]))
    found = pytree.tree_leaves(compiled.run(*given[-1]))
    report = compiled.report
    jobs = [job for part in report.partitions for job in part.report.jobs]
    return {
        "operators": report.operators,
        "on_cpu": report.computed_on_cpu,
        "programs": len(report.partitions),
        "kernels": sum(len(part.report.operators) for part in report.partitions),
        "jobs": len(jobs),
        "macs": report.macs,
        "macs_of_jobs": sum(job.macs for job in jobs),
        "milliseconds": report.milliseconds,
        "range": list(report.band),
        "real_time_factor": 1e3 * stage.seconds / report.milliseconds,
        "sram_bytes": report.sram_bytes,
        "weights_bytes": report.weights_bytes,
        "sqnr_db": [sqnr([one], [other]) for one, other in zip(real, found, strict=True)],
        "compile_cpu_seconds": seconds,
        "reasons": dict(collections.Counter(item.reason for item in report.on_cpu if item.computes)),
    }


def windows_table(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines of a table of the small vocoder over FRAMES frames in windows, whose outputs have the bits of the whole."""
    model, given = vocoder(128, 2 * max(WINDOWS), ()).make()
    field = receptive_field(model, given[0][0], 1)
    lines = [
        ("frames of a window", "frames that neighbours share", "windows", "ms", "real-time factor", "SRAM, KiB"),
        ("---:",) * 6,
    ]
    for frames in WINDOWS:
        (cell,) = results[vocoder(128, frames, ()).title]
        count = len(windows(FRAMES, frames, field))
        milliseconds = count * cell["milliseconds"]
        factor = 1e3 * FRAMES * SPEECH_HOP / SPEECH_HERTZ / milliseconds
        shared = f"{field.before + field.after}"
        numbers = (f"{count}", f"{milliseconds:.0f}", f"{factor:.1f}", f"{cell['sram_bytes'] / 1024:.0f}")
        lines.append((f"{frames}", shared, *numbers))
    return lines


TEXT_TOKENS = 100
"""The tokens of a text of 30 s of speech: about 3 a second."""


def texts_table() -> list[tuple[str, ...]]:
    """Return the lines of a table of Whisper-tiny over 30 s on i.MX 95: the encoder, and the decoder by its phases, with the dB of its logits."""
    from openneutron import speech

    model = whisper(HEARD_FRAMES, 4)
    lines = [("phase", "ms", "bound, ms"), ("---", "---:", "---:")]
    total, random = 0.0, np.random.default_rng(SEED)
    sounds = speech.examples(HEARD_FRAMES, SEED, HEARD + 1)
    texts = [random.integers(0, VOCABULARY, TEXT_TOKENS).tolist() for _ in sounds]
    for bits in (8, 4):
        noise = []
        for calibration, transcripts in ((None, None), (sounds[:HEARD], texts[:HEARD])):
            made = speech.export(model, bits=bits, calibration=calibration, transcripts=transcripts)
            with LanguageModel(made.pte) as opened:
                work = opened.work
                noise.append(_db_of_texts(model, opened, sounds[HEARD], texts[HEARD]))
        if bits == 8:
            low, high = made.encoder.report.band
            total = made.encoder.report.milliseconds
            lines.append(("encoder", f"{total:.0f} ({low:.0f} to {high:.0f})", ""))
        phases = {
            "keys and values of the sound, first 4 tokens": phase(work, 4, 0, 16),
            **{f"a token at position {at}": phase(work, 1, at, 16) for at in (64, 440)},
        }
        for name, found in phases.items():
            shown = f"{1e3 * found.seconds:.1f} ({1e3 * found.low:.1f} to {1e3 * found.high:.1f})"
            lines.append((f"decoder, int{bits}: {name}", shown, f"{1e3 * found.bound:.1f}"))
        first, later = list(phases.values())[:2]
        whole = total + 1e3 * (first.seconds + (TEXT_TOKENS - 1) * later.seconds)
        title = f"a text of {TEXT_TOKENS} tokens, int{bits}: real-time factor {30e3 / whole:.0f}, logits {noise[1]:.1f} dB ({noise[0]:.1f} without transcripts)"
        lines.append((title, f"{whole:.0f}", ""))
    return lines


def _db_of_texts(model: Any, opened: LanguageModel, sound: Any, text: list[int]) -> float:
    """Return the SQNR in dB of the logits of a text behind a sound against the float model, whose encoder both have."""
    features = torch.from_numpy(log_mel(sound, model.config.num_mel_bins, HEARD_FRAMES))[None]
    with torch.no_grad():
        source = model.get_encoder()(features)[0]
        found = model(encoder_outputs=(source,), decoder_input_ids=torch.tensor([text]), use_cache=False)
    opened.listen(source[0].numpy())
    logits = [torch.from_numpy(opened.run([token], place)) for place, token in enumerate(text)]
    return sqnr([found.logits[0]], [torch.stack(logits)])


def measure() -> dict[str, Any]:
    """Return the figures of each stage in each way; an error instead where a stage has no program. Each has a process of its own."""
    found: dict[str, Any] = {}
    for number, stage in enumerate(STAGES):
        for place, way in enumerate(stage.ways):
            command = [sys.executable, "-W", "ignore", "-m", "bench.speech", str(number), str(place)]
            cost, output = child.run(command)
            cell = json.loads(output.strip().splitlines()[-1])
            found.setdefault(stage.title, []).append({"way": way, **cell, "peak_rss_mb": cost.peak_rss_mb})
    return found


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and the lines of the table, a line for each stage and way."""
    heads = (
        *("stage", "target", "type", "operators", "on the CPU", "jobs (MACs)", "kernels", "GMAC"),
        *("ms", "real-time factor", "SRAM, KiB", "dB", "compile, CPU-s"),
    )
    return heads, [_line(stage, cell) for stage, cells in results.items() for cell in cells]


def _line(stage: str, cell: dict[str, Any]) -> tuple[str, ...]:
    target, converter, activations, budget = cell["way"]
    chip = target if converter == OPEN else f"{target}, driver"
    chip += f", {budget // 1024} KiB" if budget else ""
    first = (stage, chip, "int8" if activations == INT8 else "16x8")
    if "error" in cell:
        return (*first, cell["error"], *("",) * 9)
    low, high = cell["range"]
    jobs = f"{cell['jobs']} ({100 * cell['macs_of_jobs'] / cell['macs']:.0f}%)" if converter == DRIVER else "-"
    return (
        *first,
        f"{cell['operators']}",
        f"{cell['on_cpu']}",
        jobs,
        f"{cell['kernels']}",
        f"{cell['macs'] / 1e9:.2f}",
        f"{cell['milliseconds']:.1f} ({low:.1f} to {high:.1f})",
        f"{cell['real_time_factor']:.1f}",
        f"{cell['sram_bytes'] / 1024:.0f}",
        ", ".join(f"{each:.1f}" for each in cell["sqnr_db"]),
        f"{cell['compile_cpu_seconds']:.0f}",
    )


def reasons(results: dict[str, Any]) -> list[str]:
    """Return a line for each reason of operators on the CPU, with the stage and the number of its operators."""
    return [
        f"{stage}, {cell['way'][0]}: {count} operators: {reason}"
        for stage, cells in results.items()
        for cell in cells
        for reason, count in cell.get("reasons", {}).items()
    ]


def write_page(results: dict[str, Any]) -> None:
    """Write the table into the page, between its two marks."""
    heads, lines = rows(results)
    table = [heads, ("---",) * len(LEFT) + ("---",) + ("---:",) * (len(heads) - 1 - len(LEFT)), *lines]
    found = reasons(results)
    text = "".join(f"| {' | '.join(line)} |\n" for line in table)
    text += (
        "\nOperators on the CPU, with their reasons:\n\n"
        if found
        else "\nNo stage has an operator on the CPU outside of its program.\n"
    )
    text += "".join(f"* {line}\n" for line in found)
    text += f"\nThe small vocoder on i.MX RT700 within 512 KiB, {FRAMES} frames in windows, each with the bits of the whole:\n\n"
    text += _lines(windows_table(results))
    text += "\nWhisper-tiny's text from 30 s of sound on i.MX 95, with the driver, modelled with six cores:\n\n"
    text += _lines(texts_table())
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


def _lines(table: list[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


def main(arguments: Sequence[str]) -> None:
    """Print the figures of a stage in a way, both by number, as JSON."""
    number, place = map(int, arguments)
    stage = STAGES[number]
    torch.set_num_threads(1)
    try:
        found = figures(stage, stage.ways[place])
    except OpenNeutronError as error:
        found = {"error": str(error).splitlines()[0]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
