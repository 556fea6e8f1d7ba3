# SPDX-License-Identifier: BSD-3-Clause
"""Steps, the order of calls, and rewritten calls that can be cut into parts."""
