# SPDX-License-Identifier: BSD-3-Clause
"""Small models as people write them, each with its inputs and the result that it has to reach."""
