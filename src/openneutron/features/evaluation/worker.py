# SPDX-License-Identifier: BSD-3-Clause
"""A process that evaluates shards for its parent: ``python -m openneutron.features.evaluation.worker``.

The parent writes pickles to stdin: the bytes of a job, and then shards. The process writes pickles to stdout: READY,
and then an answer for each shard. Both processes run this package as the same user, so that pickles are safe.
"""

from __future__ import annotations

import os
import pickle
import sys

from openneutron.features.evaluation.job import evaluated, open_early
from openneutron.features.evaluation.samples import Shard

READY = "ready"


def main() -> None:
    """Evaluate shards from stdin until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    try:
        job: bytes = pickle.load(sys.stdin.buffer)
        open_early(job)
        pickle.dump(READY, answers)
        answers.flush()
        while True:
            shard: Shard = pickle.load(sys.stdin.buffer)
            pickle.dump(evaluated(job, shard), answers)
            answers.flush()
    except (EOFError, BrokenPipeError):  # the parent has what it needs, or is gone
        return


if __name__ == "__main__":
    main()
