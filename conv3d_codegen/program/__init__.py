# SPDX-License-Identifier: Apache-2.0
"""The kernel before it is text: buffers, views, instructions, counts and prices."""
