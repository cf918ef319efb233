# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802  (sympy finds a printer's methods by the names of its classes)
"""Exact integer division in sympy, and expressions as Python text.

sympy's own `floor(a/b)` turns into fractions, which print as float arithmetic. The two functions
here stay integers through every simplification, and the printer raises on all that is not one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import sympy
from sympy.printing.printer import Printer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class FloorDiv(sympy.Function):  # type: ignore[misc]  # (sympy ships no type information)
    """Quotient rounded down, Python's `//`."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, numerator: sympy.Expr, denominator: sympy.Expr) -> sympy.Expr | None:
        """Evaluate where both sides are known, or the denominator is 1."""
        if numerator.is_Integer and denominator.is_Integer:
            return sympy.Integer(int(numerator) // int(denominator))
        return numerator if denominator == 1 else None


class CeilDiv(sympy.Function):  # type: ignore[misc]  # (sympy ships no type information)
    """Quotient rounded up."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, numerator: sympy.Expr, denominator: sympy.Expr) -> sympy.Expr | None:
        """Evaluate where both sides are known, or the denominator is 1."""
        if numerator.is_Integer and denominator.is_Integer:
            return sympy.Integer(-(-int(numerator) // int(denominator)))
        return numerator if denominator == 1 else None


class _Level(IntEnum):
    """How tightly the outermost operation of a text binds."""

    ADD = 0
    NEGATIVE = 1
    DIVIDE = 2  # Python lets it bind like MULTIPLY, but order matters inside a product
    MULTIPLY = 3
    POWER = 4
    ATOM = 5


class IndexPrinter(Printer):  # type: ignore[misc]  # (sympy ships no type information)
    """Prints integer expressions as Python; raises TypeError on everything else."""

    def emptyPrinter(self, expr: Any) -> str:
        """Refuse what no method below prints: floats, fractions, unknown functions."""
        raise TypeError(f"{expr} ({type(expr).__name__}) is not an integer expression")

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        if not expr.is_integer or not expr.name.isidentifier():
            raise TypeError(f"symbol {expr.name} is not an integer variable")
        return str(expr.name)

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return str(int(expr))

    def _print_Add(self, expr: sympy.Add) -> str:
        # Positive terms first: a text that starts with a sign reads badly.
        terms = sorted(
            expr.as_ordered_terms(), key=lambda term: (term.is_Integer, _is_negative(term))
        )
        text = self._within(terms[0], _Level.ADD)
        for term in terms[1:]:
            sign = "-" if _is_negative(term) else "+"
            text += f" {sign} {self._within(-term if sign == '-' else term, _Level.DIVIDE)}"
        return text

    def _print_Mul(self, expr: sympy.Mul) -> str:
        if _is_negative(expr):
            return f"-{self._within(-expr, _Level.MULTIPLY)}"
        factors = expr.as_ordered_factors()
        return "*".join(self._within(factor, _Level.POWER) for factor in factors)

    def _print_Pow(self, expr: sympy.Pow) -> str:
        base, exponent = expr.as_base_exp()
        if not (exponent.is_Integer and exponent > 0):
            raise TypeError(f"{expr} is not an integer expression")
        return f"{self._within(base, _Level.ATOM)}**{exponent}"

    def _print_FloorDiv(self, expr: FloorDiv) -> str:
        return self._quotient("//", *expr.args)

    def _print_CeilDiv(self, expr: CeilDiv) -> str:
        numerator, denominator = expr.args
        return f"-({self._quotient('//', -numerator, denominator)})"

    def _print_Mod(self, expr: sympy.Mod) -> str:
        return self._quotient("%", *expr.args)

    def _print_Min(self, expr: sympy.Min) -> str:
        return self._call("min", expr)

    def _print_Max(self, expr: sympy.Max) -> str:
        return self._call("max", expr)

    def _quotient(self, sign: str, numerator: sympy.Expr, denominator: sympy.Expr) -> str:
        negative = _level(numerator) is _Level.NEGATIVE  # a sign binds tighter than a quotient
        over = self._within(numerator, _Level.NEGATIVE if negative else _Level.MULTIPLY)
        return f"{over} {sign} {self._within(denominator, _Level.ATOM)}"

    def _call(self, name: str, expr: sympy.Expr) -> str:
        arguments = sorted(expr.args, key=sympy.default_sort_key)
        return f"{name}({', '.join(map(self._print, arguments))})"

    def _within(self, expr: sympy.Expr, least: _Level) -> str:
        """Print an operand, in parentheses unless it binds at least that tightly."""
        text = str(self._print(expr))
        return text if _level(expr) >= least else f"({text})"


def _is_negative(expr: sympy.Expr) -> bool:
    return bool(expr.as_coeff_Mul()[0].is_negative)


def _level(expr: sympy.Expr) -> _Level:
    if expr.is_Add:
        return _Level.ADD
    if isinstance(expr, CeilDiv) or _is_negative(expr):
        return _Level.NEGATIVE
    if isinstance(expr, FloorDiv | sympy.Mod):
        return _Level.DIVIDE
    if expr.is_Mul:
        return _Level.MULTIPLY
    return _Level.POWER if expr.is_Pow else _Level.ATOM


_PRINTER = IndexPrinter()


def print_index(expr: sympy.Expr) -> str:
    """Write an integer expression as Python text."""
    return str(_PRINTER.doprint(expr))


def compile_index(expr: sympy.Expr) -> Callable[[Mapping[str, int]], int]:
    """Make a function that evaluates the printed text with numbers for its symbols."""
    code = compile(print_index(expr), "<index expression>", "eval")
    names = {"__builtins__": {"min": min, "max": max}}
    return lambda values: int(eval(code, names, values))
