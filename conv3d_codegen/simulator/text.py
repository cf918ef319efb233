# SPDX-License-Identifier: Apache-2.0
"""Checks of a kernel file's text, without running it: the Python subset and the names in use."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from conv3d_codegen.simulator.rules import Violation, ViolationLog
from conv3d_codegen.simulator.signatures import ISA, LANGUAGE, NKI, Signatures, parse_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMPORTS = {("nki", None): NKI, ("nki.isa", "nisa"): ISA, ("nki.language", "nl"): LANGUAGE}
_ALIASES = {"nki": NKI, "nisa": ISA, "nl": LANGUAGE}
# Statements and expressions that some front end or version rejects.
_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.Set: "a set literal",
    ast.Try: "try",
    ast.Raise: "raise",
    ast.Delete: "del",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "async",
    ast.AsyncFor: "async",
    ast.AsyncWith: "async",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Match: "match",
    ast.Starred: "starred arguments",
    ast.NamedExpr: ":=",
    ast.While: "while",
    ast.MatMult: "the operator @",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
# What a kernel cannot be executed with: it may not end, or reach outside.
_NOT_EXECUTED = {"syntax", "imports", "kernel-function"}


class ParsedKernel:
    """A kernel file that was read: its tree, its kernel function, what is wrong with the text."""

    def __init__(self, source: str, filename: str, signatures: Signatures) -> None:
        self.log = ViolationLog()
        self.entry = ""
        self.is_executable = False
        self.tree: ast.Module | None = None
        try:
            self.tree = ast.parse(source, filename)
        except SyntaxError as error:
            self.log.add(error.lineno or 0, "syntax", error.msg)
            return
        self._check_top_level(self.tree)
        _NodeChecks(self.log, signatures).run(self.tree)
        found = self.log.sorted()
        self.is_executable = bool(self.entry) and not any(
            v.rule in _NOT_EXECUTED or "while" in v.message or "__" in v.message for v in found
        )

    def _check_top_level(self, tree: ast.Module) -> None:
        seen: list[tuple[str, str | None]] = []
        kernels: list[ast.FunctionDef] = []
        for statement in tree.body:
            if isinstance(statement, ast.Import):
                seen += [(name.name, name.asname) for name in statement.names]
            elif isinstance(statement, ast.FunctionDef):
                if statement.decorator_list:
                    kernels.append(statement)
            elif not _is_constant_statement(statement):
                self.log.add(
                    statement.lineno, "subset", "at module level only imports, constants, functions"
                )
        if sorted(seen, key=str) != sorted(_IMPORTS, key=str):
            self.log.add(1, "imports", "imports must be nki, nki.isa as nisa, nki.language as nl")
        if len(kernels) != 1:
            self.log.add(1, "kernel-function", f"{len(kernels)} decorated functions, 1 is needed")
            return
        self._check_kernel(kernels[0])

    def _check_kernel(self, kernel: ast.FunctionDef) -> None:
        decorators = [ast.unparse(decorator) for decorator in kernel.decorator_list]
        if decorators not in (["nki.jit"], ["nki.jit()"]):
            self.log.add(kernel.lineno, "kernel-function", f"decorated with {', '.join(decorators)}")
            return
        self.entry = kernel.name
        if kernel.args.vararg or kernel.args.kwarg or kernel.args.kwonlyargs:
            self.log.add(kernel.lineno, "kernel-function", "parameters must be plain and positional")


class _NodeChecks:
    """Walks the tree once; what holds for single nodes."""

    def __init__(self, log: ViolationLog, signatures: Signatures) -> None:
        self._log = log
        self._signatures = signatures

    def run(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            line = getattr(node, "lineno", 0)
            name = _FORBIDDEN.get(type(node))
            if name is not None and line:
                self._log.add(line, "subset", f"{name} is not in the common subset")
            for message in _node_problems(node):
                self._log.add(line, "subset", message)
            if isinstance(node, ast.Attribute):
                self._check_attribute(node)
            if isinstance(node, ast.Call):
                self._check_call(node)
        for function in tree.body:
            if isinstance(function, ast.FunctionDef):
                self._check_nested(function)

    def _check_attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__"):
            self._log.add(node.lineno, "subset", f"attribute {node.attr} is not in the subset")
        if not isinstance(node.value, ast.Name) or node.value.id not in _ALIASES:
            return
        module = _ALIASES[node.value.id]
        if module == NKI and node.attr in {"isa", "language"}:
            return
        missing = self._signatures.missing_versions(module, node.attr)
        text = f"{node.value.id}.{node.attr}"
        if missing is None:
            self._log.add(node.lineno, "unknown-name", f"{text} exists in no NKI version")
        elif missing:
            self._log.add(node.lineno, "unknown-name", f"{text} is not in NKI {', '.join(missing)}")

    def _check_call(self, node: ast.Call) -> None:
        function = node.func
        if any(keyword.arg is None for keyword in node.keywords):
            self._log.add(node.lineno, "subset", "** arguments are not in the common subset")
            return
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return
        module = _ALIASES.get(function.value.id)
        if module is None or any(isinstance(argument, ast.Starred) for argument in node.args):
            return
        keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        for rule, message in self._signatures.problems(
            module, function.attr, len(node.args), keywords
        ):
            self._log.add(node.lineno, rule, message)

    def _check_nested(self, function: ast.FunctionDef) -> None:
        """Nested functions are the bodies of hardware loops, which exist from NKI 0.6 on."""
        allowed = not self._signatures.missing_versions(LANGUAGE, "fori_loop")
        for node in ast.walk(function):
            if isinstance(node, ast.FunctionDef) and node is not function and not allowed:
                self._log.add(node.lineno, "subset", "nested functions need NKI 0.6")


def _is_constant_statement(statement: ast.stmt) -> bool:
    """A docstring or `NAME = literal`."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Assign) and all(
        isinstance(target, ast.Name) for target in statement.targets
    )


def _node_problems(node: ast.AST) -> Iterator[str]:
    """Forms that are in the subset only partly."""
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        yield "else of a loop is not in the common subset"
    if isinstance(node, ast.With):
        items = [ast.unparse(item.context_expr) for item in node.items]
        if items != ["nl.no_reorder()"] or node.items[0].optional_vars is not None:
            yield "with is only for nl.no_reorder()"
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        yield "format specifications are not in the common subset"
    if isinstance(node, ast.Compare):
        for operator in node.ops:
            name = _FORBIDDEN.get(type(operator))
            if name:
                yield f"{name} is not in the common subset"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield "the operator @ is not in the common subset"
    if isinstance(node, ast.ImportFrom):
        yield "from ... import is not in the common subset"
    if isinstance(node, ast.Name) and node.id.startswith("__"):
        yield f"name {node.id} is not in the subset"


def check_text(source: str, nki: str = "0.6") -> tuple[Violation, ...]:
    """What is wrong with a kernel's text for the NKI versions asked for, without running it."""
    return ParsedKernel(source, "<kernel>", Signatures(parse_versions(nki))).log.sorted()
