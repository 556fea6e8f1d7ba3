# SPDX-License-Identifier: BSD-3-Clause
"""Programs that ExecuTorch loads but refuses to run."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from openneutron.errors import InvalidModelError
from tests.pytorch.small_models import compiled


def test_what_a_cpu_kernel_refuses_is_said_in_words() -> None:
    small = compiled(lambda m, x: F.pad(m.conv(x), (-1, 1)), name="cropped")
    with pytest.raises(InvalidModelError) as caught:
        small.program.run(*small.inputs[0])
    message = str(caught.value)
    assert message.startswith("'cropped': ExecuTorch can't run it: ")
    assert "Padding values must be non-negative" in message
    assert message.endswith("`openneutron explain` lists those that stay on the CPU.")
