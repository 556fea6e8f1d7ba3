# SPDX-License-Identifier: BSD-3-Clause
"""The features of OpenNeutron besides compiling. Each has a folder with its command."""
