# SPDX-License-Identifier: BSD-3-Clause
"""Chips that are known by name and not compiled for."""

from openneutron.targets.target import Number, Target

_NEUTRON_S = "is not a neutron-C target. Only MCU targets are supported at the moment."
_N1 = "contains unsupported HW version. Only N3/N3+ targets are supported at the moment."
_UNKNOWN = "not published"


def _mcxn(name: str) -> Target:
    # 16 multiply-accumulates in a cycle are what secondary sources give; how they divide into pipelines is assumed.
    return Target(
        name=name,
        title=f"NXP {name.upper().removesuffix('X')}x, eIQ Neutron N1-16",
        subsystem=False,
        units=1,
        pipelines=4,
        macs=4,
        hw_version="N1",
        clock=Number(150, "MHz", "secondary: product pages"),
        sram=Number(512, "KiB", "secondary: product pages"),
        costs=None,
        obstacle=_N1,
    )


def _neutron_s(name: str, title: str, clock: float, shape: tuple[int, int, int]) -> Target:
    """``shape`` is units, pipelines and multipliers; zeros where nothing is published."""
    units, pipelines, macs = shape
    return Target(
        name=name,
        title=title,
        subsystem=True,
        units=units,
        pipelines=pipelines,
        macs=macs,
        hw_version="N3",
        clock=Number(clock, "MHz", "secondary: product pages" if clock else _UNKNOWN),
        sram=Number(0, "KiB", _UNKNOWN),
        costs=None,
        obstacle=_NEUTRON_S,
    )


TARGETS = (
    _mcxn("mcxn94x"),
    _mcxn("mcxn54x"),
    _neutron_s("imx95", "NXP i.MX 95, eIQ Neutron N3-1024S", 1000, (4, 16, 16)),
    _neutron_s("imx943", "NXP i.MX 943", 0, (0, 0, 0)),
)
