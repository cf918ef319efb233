# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, call the library, print. One file per command."""
