# SPDX-License-Identifier: BSD-3-Clause
"""The data of a report inside a compiled file, behind its end, where ExecuTorch and LiteRT do not look.

The form is the file, the compressed JSON, its length in 8 bytes, and a mark.
"""

from __future__ import annotations

import json
import zlib

from openneutron.errors import InvalidModelError
from openneutron.features.report.page.data import ReportData, from_dict

MARK = b"openneutron facts"
LENGTH_BYTES = 8


def with_facts(file: bytes, data: ReportData) -> bytes:
    """Return a compiled file with the data of its report. The same arguments give the same bytes."""
    packed = zlib.compress(json.dumps(data.to_dict(), separators=(",", ":")).encode(), 9)
    return b"".join((file, packed, len(packed).to_bytes(LENGTH_BYTES, "little"), MARK))


def facts_of(file: bytes, name: str) -> ReportData:
    """Return the data inside a compiled file.

    Raises InvalidModelError, which calls the file ``name``, where it has none, or where the data is damaged.
    """
    end = len(file) - len(MARK) - LENGTH_BYTES
    if not has_facts(file):
        raise InvalidModelError(
            f"'{name}': it was saved without the facts of its compile, which a report shows. Compile the model with --facts "
            "(program.save(path, facts=True)), or make the report of the model itself."
        )
    start = end - int.from_bytes(file[end : end + LENGTH_BYTES], "little")
    try:
        values = json.loads(zlib.decompress(file[max(start, 0) : end]))
    except (zlib.error, ValueError) as error:
        raise InvalidModelError(f"'{name}': the facts of its compile are damaged. Compile the model again.") from error
    return from_dict(values, name)


def has_facts(file: bytes) -> bool:
    """Return whether a compiled file has the data of a report."""
    return file.endswith(MARK)
