# SPDX-License-Identifier: Apache-2.0
"""Expressions print as Python that computes the same integers."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from conv3d_codegen.symbolic import CeilDiv, FloorDiv, compile_index, print_index

a, b, c, n = sympy.symbols("a b c n", integer=True)
SYMBOLS = (a, b, c)


def _expressions() -> st.SearchStrategy[sympy.Expr]:
    leaves = st.one_of(st.sampled_from(SYMBOLS), st.integers(-9, 9).map(sympy.Integer))

    def grow(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
        pairs = st.tuples(inner, inner)
        # Divisors cannot be zero whatever the symbols' values.
        divisors = st.one_of(
            st.integers(1, 9).map(sympy.Integer),
            st.integers(-9, -1).map(sympy.Integer),
            inner.map(lambda e: e**2 + 1),
        )
        quotients = st.tuples(inner, divisors)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] - p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            pairs.map(lambda p: sympy.Max(*p)),
            pairs.map(lambda p: sympy.Min(*p)),
            quotients.map(lambda p: FloorDiv(*p)),
            quotients.map(lambda p: CeilDiv(*p)),
            quotients.map(lambda p: sympy.Mod(*p)),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@given(_expressions(), st.tuples(*[st.integers(-20, 20)] * 3))
def test_printed_text_evaluates_to_what_substitution_gives(
    expr: sympy.Expr, values: tuple[int, int, int]
) -> None:
    substituted = expr.subs(dict(zip(SYMBOLS, values, strict=True)))
    numbers = {symbol.name: value for symbol, value in zip(SYMBOLS, values, strict=True)}
    assert eval(print_index(expr), {"min": min, "max": max}, numbers) == int(substituted)
    assert compile_index(expr)(numbers) == int(substituted)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (3 * FloorDiv(n, 2), "3*(n // 2)"),
        (FloorDiv(a + b, c) + 1, "(a + b) // c + 1"),
        (FloorDiv(a * b, c), "a*b // c"),
        (FloorDiv(a, b * c), "a // (b*c)"),
        (FloorDiv(FloorDiv(a, b), c), "(a // b) // c"),
        (FloorDiv(a, FloorDiv(b, c)), "a // (b // c)"),
        (CeilDiv(a, b), "-(-a // b)"),
        (a - CeilDiv(b, c), "a - (-(-b // c))"),
        (sympy.Mod(a, b) * 2, "2*(a % b)"),
        (a - b * (n - 1) - 1, "a - b*(n - 1) - 1"),
        (-a - 1, "-a - 1"),
        ((a + b) ** 2 * c, "c*(a + b)**2"),
        (sympy.Max(0, a - b), "max(0, a - b)"),
    ],
)
def test_text_has_the_parentheses_it_needs_and_no_more(expr: sympy.Expr, text: str) -> None:
    assert print_index(expr) == text


@pytest.mark.parametrize(
    "expr",
    [
        a / 2,
        sympy.Rational(1, 2),
        sympy.Float(1.5) * a,
        1 / a,
        a**b,
        sympy.sin(a),
        sympy.floor(a / 2),
        sympy.Symbol("x"),
        sympy.Symbol("a b", integer=True),
        sympy.sqrt(a),
    ],
)
def test_what_is_not_an_integer_expression_is_refused(expr: sympy.Expr) -> None:
    with pytest.raises(TypeError):
        print_index(expr)


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_divisions_of_numbers_are_exact(numerator: int, denominator: int) -> None:
    assert FloorDiv(numerator, denominator) == numerator // denominator
    assert CeilDiv(numerator, denominator) == -(-numerator // denominator)
