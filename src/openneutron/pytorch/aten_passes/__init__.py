# SPDX-License-Identifier: BSD-3-Clause
"""The places where scripts for ExecuTorch's NXP backend import passes on ATen graphs.

A module is here if this project has a pass for its purpose. Each class makes such a pass, which changes a graph module in place.
"""
