# SPDX-License-Identifier: BSD-3-Clause
"""A standalone program: one conversion by NXP's eiq_neutron_sdk, in a process that may crash.

    python eiq_child.py FOLDER

The program reads ``request.json`` and ``model.tflite`` in the folder. It writes ``converted.tflite`` there, or
``refused.json`` if the SDK does not know the target or a flag. It imports nothing of this project, so that a crash here
is always a fault of the SDK.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    sys.path[:] = request["search_path"]
    from eiq_neutron_sdk import neutron_converter, neutron_library_utils

    def refuse(what: str, given: str, there_are: list[str]) -> None:
        (folder / "refused.json").write_text(json.dumps({"what": what, "given": given, "there_are": there_are}))

    # The SDK crashes on targets it does not know.
    if not neutron_library_utils.isNeutronTarget(request["target"]):
        refuse("target", request["target"], [target.name for target in neutron_library_utils.getNeutronTargets()])
        return
    context = neutron_converter.CompilationContext()
    context.targetOpts = neutron_converter.getNeutronTarget(request["target"])
    options = context.compilationOpts
    known = [name for name in dir(options) if not name.startswith("_")]
    for name, value in request["options"].items():
        # Older releases have no field for profiling, and need none where it is off.
        if name in known or value:
            setattr(options, name, value)
    for name, text in request["flags"]:
        if name not in known:
            refuse("flag", name, known)
            return
        setattr(options, name, typed(text, getattr(options, name)))
    converted = neutron_converter.convertModel(list((folder / "model.tflite").read_bytes()), context)
    (folder / "converted.tflite").write_bytes(bytes(converted))


def typed(text: str | None, like: Any) -> Any:
    """Return the value of a flag's text for an option whose present value is ``like``.

    For a bool it is True if the text is None (a flag without a value), "true", "1" or "yes", in any case. For an int
    it is the integer. Otherwise it is the text itself, or None. Raises ValueError for an int's text that is no
    integer.
    """
    if isinstance(like, bool):
        return text is None or text.lower() in ("true", "1", "yes")
    if isinstance(like, int) and text is not None:
        return int(text)
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
