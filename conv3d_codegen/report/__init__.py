# SPDX-License-Identifier: Apache-2.0
"""What people read: an inspection of a kernel, a comparison of two, the state of the machine."""
