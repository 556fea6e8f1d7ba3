# SPDX-License-Identifier: BSD-3-Clause
"""The API of ``import openneutron``: compile a model or file with one call, and open compiled files."""
