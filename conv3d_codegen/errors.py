# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N818  (each name states the broken rule; the base class says that it is an error)
"""What can be wrong with a request, one class per rule.

Every error a user can cause derives from `RequestError`. It has a stable `code` (a readable slug)
and prints one line: what was given, what is wrong with it, what is accepted.
"""

from __future__ import annotations

from typing import ClassVar


class RequestError(ValueError):
    """The request is wrong; `str(error)` is the one line to show."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class RuleError(RequestError):
    """A request that breaks one documented rule; each subclass is a rule with its own code."""

    rule: ClassVar[str] = "request"

    def __init__(self, given: str, problem: str, accepted: str) -> None:
        super().__init__(self.rule, f"{given}: {problem}; accepted: {accepted}")
        self.args = (given, problem, accepted)  # what pickling hands back to the constructor


# --- how a request is written --------------------------------------------------------------------


class NotAnInteger(RuleError):
    """A value that should be an integer is not."""

    rule = "not-an-integer"


class WrongCount(RuleError):
    """A list has a length that fits neither the rank nor a single number."""

    rule = "wrong-count"


class MalformedKey(RuleError):
    """A geometry key that cannot be read."""

    rule = "malformed-key"


class MalformedLayers(RuleError):
    """A LAYERS file, or an entry of one, that cannot be read."""

    rule = "malformed-layers"


class UnknownLayer(RuleError):
    """A MODEL/LAYER that the LAYERS file does not hold, or a choice that is not unique."""

    rule = "unknown-layer"


class ConflictingOptions(RuleError):
    """Options that say the geometry twice, or not at all."""

    rule = "conflicting-options"


# --- sizes ---------------------------------------------------------------------------------------


class RankError(RuleError):
    """The number of spatial axes is not 1, 2 or 3, or a missing axis is not a unit axis."""

    rule = "rank"


class SizeNotPositive(RuleError):
    """A channel count, input extent or kernel extent below 1."""

    rule = "size-not-positive"


class NumberTooLarge(RuleError):
    """A number that does not fit NKI's 32-bit integers."""

    rule = "number-too-large"


class TensorTooLarge(RuleError):
    """A tensor whose element offsets do not fit NKI's 32-bit integers."""

    rule = "tensor-too-large"


class OutputTooLarge(RuleError):
    """A gradient over 4 GiB, which the Neuron compiler refuses (NCC_EVRF024)."""

    rule = "output-too-large"


class GroupsError(RuleError):
    """Groups below 1, or groups that do not divide both channel counts."""

    rule = "groups"


class StrideNotPositive(RuleError):
    """A stride below 1."""

    rule = "stride-not-positive"


class DilationNotPositive(RuleError):
    """A dilation below 1."""

    rule = "dilation-not-positive"


class PaddingNegative(RuleError):
    """A padding below 0."""

    rule = "padding-negative"


class OutputPaddingRange(RuleError):
    """Output padding below 0, or not below the larger of stride and dilation."""

    rule = "output-padding-range"


class OutputPaddingNotTransposed(RuleError):
    """Output padding given for an ordinary convolution."""

    rule = "output-padding-not-transposed"


# --- problems without work -----------------------------------------------------------------------


class EmptyProblem(RuleError):
    """No kernel is needed: some tensor of the problem has no elements.

    A call layer that wants the frameworks' answer (dx empty or zero, dw and db zero) catches this.
    """

    rule = "empty-problem"


class ZeroBatch(EmptyProblem):
    """A batch of 0: dx is empty, dw and db are zero."""

    rule = "zero-batch"


class EmptyOutput(EmptyProblem):
    """A transposed convolution whose output has no elements."""

    rule = "empty-output"


class KernelExceedsInput(EmptyOutput):
    """A dilated kernel larger than the padded input, so that no window fits."""

    rule = "kernel-exceeds-input"


class NothingToCompute(RuleError):
    """No gradient was asked for."""

    rule = "nothing-to-compute"


class TextTooLong(RuleError):
    """A kernel that must do without loops would exceed the instruction budget."""

    rule = "instruction-budget"


# --- choices -------------------------------------------------------------------------------------


class UnknownGradient(RuleError):
    """A gradient other than dx, dw, db."""

    rule = "unknown-gradient"


class UnknownDtype(RuleError):
    """An element type no kernel is made for."""

    rule = "unknown-dtype"


class MixedDtypes(RuleError):
    """Inputs of different element types that are not all 8-bit floats."""

    rule = "mixed-dtypes"


class UnknownMath(RuleError):
    """A math mode other than full, tf32, bf16."""

    rule = "unknown-math"


class MathNeedsFp32(RuleError):
    """A reduced math mode for inputs that are already narrow."""

    rule = "math-needs-fp32"


class UnknownLayout(RuleError):
    """An activation layout no kernel is made for, or one of another rank."""

    rule = "unknown-layout"


class UnknownFilterLayout(RuleError):
    """A filter layout no kernel is made for, or one of another rank."""

    rule = "unknown-filter-layout"


class UnknownTarget(RuleError):
    """A target without a hardware table."""

    rule = "unknown-target"


class UnknownLnc(RuleError):
    """A number of physical cores per logical core that the targets do not have."""

    rule = "unknown-lnc"


# --- stores --------------------------------------------------------------------------------------


class CacheUnwritable(RuleError):
    """A cache folder that nothing can be written to: read-only, full, or no folder."""

    rule = "cache-unwritable"


class MalformedPack(RuleError):
    """A pack that is truncated, damaged, unsafe to read, or of a later format."""

    rule = "malformed-pack"


class ConflictingPacks(RuleError):
    """Packs that hold different kernels of the same geometry."""

    rule = "conflicting-packs"
