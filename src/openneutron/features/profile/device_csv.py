# SPDX-License-Identifier: BSD-3-Clause
"""The profile that the example of a bundle prints on a device (src/openneutron/features/export/templates/example/main.c).

It begins with ``openneutron-profile,1,UNIT`` and the columns' names, has one row for each kernel call, and ends with
``openneutron-profile,end,ROWS``. Other lines of the console before and behind it are skipped.
"""

from __future__ import annotations

from openneutron.errors import InvalidProgramError
from openneutron.features.profile.profile import Key, Measurement, Programs, checksum, summed
from openneutron.features.report.units import plural
from openneutron.isa import decode
from openneutron.isa.microcode import calls

BEGIN = "openneutron-profile,1,"
END = "openneutron-profile,end,"
COLUMNS = ("program", "checksum", "call", "kernel", "time")


def read_device_csv(name: str, text: str, programs: Programs) -> tuple[str, dict[Key, Measurement]]:
    """Return the unit of the times, ``cycles`` or ``instructions``, and the times of the operators of these programs.

    ``name`` is the file's. Times of a program that is not among them count for its operator 0. Raises InvalidProgramError
    where the text has no profile, or a damaged or incomplete one.
    """
    operators = {checksum(program): [step.operator for step in calls(decode(program))] for _, program in programs}
    lines = [line.strip() for line in text.splitlines()]
    begun = next((at for at, line in enumerate(lines) if line.startswith(BEGIN)), None)
    if begun is None:
        raise InvalidProgramError(
            f"--from {name}: it is no profile: it is no ETDump, and no line of it begins with '{BEGIN}', as the profile of a "
            "bundle's example does."
        )
    ended = next((at for at in range(begun, len(lines)) if lines[at].startswith(END)), None)
    rows = lines[begun + 2 : ended]
    if ended is None or lines[ended] != f"{END}{len(rows)}" or lines[begun + 1] != ",".join(COLUMNS):
        raise InvalidProgramError(
            f"--from {name}: the profile that begins in line {begun + 1} is incomplete. Record it again, up to the line that "
            f"begins with '{END}'."
        )
    times: list[tuple[int, int, int]] = []
    for number, row in enumerate(rows, begun + 3):
        fields = row.split(",")
        if len(fields) != len(COLUMNS) or not all(field.isascii() and field.isdigit() for field in fields):
            raise InvalidProgramError(
                f"--from {name}: line {number} is '{row}'; a row has {len(COLUMNS)} numbers: {', '.join(COLUMNS)}. Record it "
                "again."
            )
        _, program, call, _, time = map(int, fields)
        known = operators.get(program, [])
        if program in operators and call >= len(known):
            raise InvalidProgramError(
                f"--from {name}: line {number} has kernel call {call} of a program that makes {plural(len(known), 'call')} a run. "
                "Record it again."
            )
        times.append((program, known[call] if known else 0, time))
    return lines[begun].removeprefix(BEGIN), summed(times)
