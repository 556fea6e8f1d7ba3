# SPDX-License-Identifier: BSD-3-Clause
"""Files of random chips: pipelines, multipliers, memories, copy engines and costs from a seed."""

from __future__ import annotations

import random
from pathlib import Path

from openneutron import targets

SOURCE = "assumed: drawn"


def fact(name: str, value: object, unit: str = "") -> str:
    """Return the line of a fact."""
    said = str(value).replace("'", '"')
    return f"{name} = {{ value = {said}, " + (f'unit = "{unit}", ' if unit else "") + f'source = "{SOURCE}" }}\n'


def memory(name: str, holds: list[str], size: int, readers: list[str], generator: random.Random) -> str:
    """Return a table of a memory of ``size`` KiB with a rate, a latency and an alignment from the generator."""
    return (
        f'[[memory]]\nname = "{name}"\n'
        + fact("holds", holds)
        + fact("size", size, "KiB")
        + fact("bandwidth", generator.choice((0.5, 1, 4, 16, 64)), "bytes/cycle")
        + fact("latency", generator.randint(0, 200), "cycles")
        + fact("alignment", generator.choice((1, 4, 16)), "bytes")
        + fact("readers", readers)
        + fact("writers", ["npu", "host"] if "activations" in holds else [])
    )


def copy_engine(name: str, source: str, generator: random.Random) -> str:
    """Return a table of an engine that copies to ``sram``."""
    return (
        f'[[copy_engine]]\nname = "{name}"\nsource = "{source}"\ndestination = "sram"\n'
        + fact("channels", generator.randint(1, 16))
        + fact("mode", [generator.choice(("synchronous", "background"))])
        + fact("rate", generator.choice((0.05, 0.75, 2, 8, 64)), "bytes/cycle")
    )


def memories(size: int, generator: random.Random) -> str:
    """Return the tables of all memories and copy engines: the SRAM, and one to three memories of constants, in any order.

    The NPU reads the SRAM and some of the others.
    """
    others = ["flash", "psram", "rom"][: generator.randint(1, 3)]
    tables = [memory("sram", ["activations", "constants"][: generator.randint(1, 2)], size, ["npu", "host"], generator)]
    for name in others:
        readers = ["npu", "host"] if generator.random() < 0.3 else ["host"]
        tables.append(memory(name, ["constants"], generator.choice((2048, 65536)), readers, generator))
    generator.shuffle(tables)
    engines = [copy_engine(f"engine {name}", name, generator) for name in others[: generator.randint(1, len(others))]]
    return "".join(tables + engines)


def compute(generator: random.Random, int16: bool) -> str:
    """Return the table of the compute units; ``int16``: the multipliers accept int16 activations."""
    return (
        "[npu]\n"
        + fact("units", generator.randint(1, 4))
        + fact("pipelines", generator.randint(2, 32))
        + fact("macs", generator.randint(2, 32))
        + fact("accumulators", generator.choice((1, 4, 16, 64)))
        + fact("clock", generator.choice((100, 150, 324, 1000)), "MHz")
        + fact("data_types", ["int8", "int16"] if int16 else ["int8"])
        + fact("int16_passes", generator.choice((1, 1.5, 2, 4)), "times")
    )


def costs(generator: random.Random) -> str:
    """Return the tables of the host and of the cost model."""
    return (
        '[host]\ncore = "Cortex-M33"\n'
        + fact("clock", 150, "MHz")
        + fact("operator_cycles", generator.randint(0, 5000), "cycles")
        + fact("softmax_cycles", generator.randint(0, 500), "cycles/element")
        + fact("conversion_cycles", generator.randint(0, 100), "cycles/element")
        + "[costs]\n"
        + fact("issue_cycles", generator.choice((0, 50, 4406, 60_000)), "cycles")
        + fact("fill_cycles", round(generator.uniform(0, 3), 3), "cycles")
        + fact("depthwise_macs", generator.randint(1, 8))
        + fact("elementwise_bytes", generator.randint(1, 64), "bytes/cycle")
        + fact("softmax_cycles", generator.randint(1, 64), "cycles/element")
        + fact("error", 16, "%")
    )


def text_of_chip(seed: int, int16: bool = False) -> str:
    """Return the file of the chip of this seed: of class Neutron-C, with 1 KiB to 8 MiB of SRAM."""
    generator = random.Random(seed)
    size = generator.choice((1, 2, 8, 64, 512, 8192))
    head = f'name = "drawn{seed}"\ntitle = "Drawn {seed}"\nfamily = "Neutron-C"\nhw_version = "N1"\n'
    parts = [compute(generator, int16 or generator.random() < 0.5), memories(size, generator), costs(generator)]
    return head + "".join(parts) + '[port]\nname = "cortex_m33"\nboards = []\n'


def drawn(folder: Path, seed: int, int16: bool = False) -> targets.Target:
    """Return the target of this seed, read from its file."""
    path = folder / f"drawn{seed}.toml"
    path.write_text(text_of_chip(seed, int16))
    return targets.get(str(path))
