# SPDX-License-Identifier: Apache-2.0
"""Checks of a kernel file's text, without running it: the Python subset and the names in use."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, cast

from conv3d_codegen.simulator.rules import Violation, ViolationLog
from conv3d_codegen.simulator.signatures import ISA, LANGUAGE, NKI, Signatures, parse_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_IMPORTS = {("nki", None), ("nki.isa", "nisa"), ("nki.language", "nl")}
_ALIASES = {"nki": NKI, "nisa": ISA, "nl": LANGUAGE}
# Statements, expressions and operators that some front end or version rejects.
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
    ast.Starred: "a starred argument",
    ast.NamedExpr: ":=",
    ast.While: "while",
    ast.ImportFrom: "from ... import",
    ast.MatMult: "the operator @",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
# Forms with which a file is not executed: it may not end, or reach outside.
_NOT_EXECUTED = (ast.While, ast.ImportFrom, ast.Import, ast.ClassDef)
# Fields that hold no nodes to visit; operators are looked at with the expression they stand in.
_PLAIN_FIELDS = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "kind", "level", "module", "name"}
    | {"op", "ops", "type_comment"}
)


class ParsedKernel:
    """A kernel file that was read: its kernel function's name, and what is wrong with the text."""

    def __init__(self, source: str, filename: str, signatures: Signatures) -> None:
        self.log = ViolationLog()
        self.entry = ""
        self.parameters: tuple[str, ...] = ()
        self.is_executable = False
        self.tree = ast.Module([], [])
        try:
            self.tree = ast.parse(source, filename)
        except SyntaxError as error:
            self.log.add(error.lineno or 0, "syntax", error.msg)
            return
        checks = _NodeChecks(self.log, signatures, self.tree)
        self.is_executable = self._check_top_level(self.tree) and checks.run()

    def _check_top_level(self, tree: ast.Module) -> bool:
        """Check imports, constants and functions; return whether there is one kernel to execute."""
        imports: list[tuple[str, str | None]] = []
        decorated: list[ast.FunctionDef] = []
        for statement in tree.body:
            if isinstance(statement, ast.Import):
                imports += [(name.name, name.asname) for name in statement.names]
            elif isinstance(statement, ast.FunctionDef):
                decorated += [statement] if statement.decorator_list else []
            elif not _is_constant(statement):
                self.log.add(
                    statement.lineno, "subset", "only imports, constants and functions at top level"
                )
        if set(imports) != _IMPORTS:
            self.log.add(1, "imports", "must be nki, nki.isa as nisa, nki.language as nl")
        if len(decorated) != 1:
            self.log.add(1, "kernel-function", f"{len(decorated)} decorated functions, 1 needed")
            return False
        return self._check_kernel(decorated[0]) and set(imports) <= _IMPORTS

    def _check_kernel(self, kernel: ast.FunctionDef) -> bool:
        decorators = [ast.unparse(decorator) for decorator in kernel.decorator_list]
        if decorators not in (["nki.jit"], ["nki.jit()"]):
            line = kernel.decorator_list[0].lineno
            self.log.add(line, "kernel-function", f"decorated with {', '.join(decorators)}")
            return False
        self.entry = kernel.name
        self.parameters = tuple(argument.arg for argument in kernel.args.args)
        if kernel.args.vararg or kernel.args.kwarg or kernel.args.kwonlyargs:
            self.log.add(kernel.lineno, "kernel-function", "parameters must be plain, positional")
        return True


class _NodeChecks:
    """Walks the tree once and checks what holds for single nodes."""

    def __init__(self, log: ViolationLog, signatures: Signatures, tree: ast.Module) -> None:
        self._log = log
        self._signatures = signatures
        self._tree = tree
        self._top_level = {id(statement) for statement in tree.body}
        self._is_safe = True
        self._names: dict[tuple[str, str], str] = {}
        self._calls: dict[tuple[str, str, int, tuple[str, ...]], list[tuple[str, str]]] = {}
        self._fields: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}

    def run(self) -> bool:
        """Check every node; return whether the file is safe to execute."""
        checks: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.Attribute: self._check_attribute,
            ast.Call: self._check_call,
            ast.FunctionDef: self._check_function,
            ast.Name: self._check_name,
        }
        checks |= dict.fromkeys(_FORBIDDEN, self._forbid)
        checks |= dict.fromkeys((ast.For, ast.With, ast.FormattedValue), self._check_form)
        checks |= dict.fromkeys((ast.Compare, ast.BinOp, ast.AugAssign), self._check_operators)
        checks[ast.Import] = self._check_import
        stack: list[ast.AST] = [self._tree]
        while stack:
            node = stack.pop()
            kind = node.__class__
            check = checks.get(kind)
            if check is not None:
                check(node)
            fields = self._fields.get(kind)
            if fields is None:
                fields = self._add_fields(kind)
            for field in fields:
                child = getattr(node, field)
                if child.__class__ is list:
                    stack.extend(child)
                elif child is not None and child.__class__ is not ast.Constant:
                    stack.append(child)
        return self._is_safe

    def _add_fields(self, kind: type[ast.AST]) -> tuple[str, ...]:
        names = getattr(kind, "_fields", ())  # some nodes hold plain strings and numbers
        fields = tuple(field for field in names if field not in _PLAIN_FIELDS)
        self._fields[kind] = fields
        return fields

    def _forbid(self, node: ast.stmt | ast.expr) -> None:
        self._log.add(node.lineno, "subset", f"{_FORBIDDEN[type(node)]} is not in the subset")
        if isinstance(node, _NOT_EXECUTED):
            self._is_safe = False

    def _check_import(self, node: ast.Import) -> None:
        if id(node) not in self._top_level:
            self._log.add(node.lineno, "subset", "import inside a function is not in the subset")

    def _check_operators(self, node: ast.Compare | ast.BinOp | ast.AugAssign) -> None:
        for operator in node.ops if isinstance(node, ast.Compare) else [node.op]:
            name = _FORBIDDEN.get(type(operator))
            if name is not None:
                self._log.add(node.lineno, "subset", f"{name} is not in the subset")

    def _check_form(self, node: Any) -> None:
        for line, message in _partly_allowed(node):
            self._log.add(line, "subset", message)

    def _check_name(self, node: ast.Name) -> None:
        if node.id.startswith("__"):
            self._log.add(node.lineno, "subset", f"{node.id} is not in the subset")
            self._is_safe = False

    def _check_attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            self._log.add(node.lineno, "subset", f"attribute {node.attr} is not in the subset")
            self._is_safe = False
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id in _ALIASES:
            key = (owner.id, node.attr)
            problem = self._names.get(key)
            if problem is None:
                problem = self._names[key] = self._name_problem(*key)
            if problem:
                self._log.add(node.lineno, "unknown-name", problem)

    def _name_problem(self, alias: str, name: str) -> str:
        if alias == "nki" and name in {"isa", "language"}:
            return ""
        missing = self._signatures.missing_versions(_ALIASES[alias], name)
        if missing is None:
            return f"{alias}.{name} exists in no NKI version"
        return f"{alias}.{name} is not in NKI {', '.join(missing)}" if missing else ""

    def _check_call(self, node: ast.Call) -> None:
        function = node.func
        keywords = tuple([keyword.arg for keyword in node.keywords])
        if None in keywords:
            self._log.add(node.lineno, "subset", "** arguments are not in the subset")
            return
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return
        module = _ALIASES.get(function.value.id)
        if module is None or any(isinstance(argument, ast.Starred) for argument in node.args):
            return
        key = (module, function.attr, len(node.args), cast("tuple[str, ...]", keywords))
        problems = self._calls.get(key)
        if problems is None:
            problems = self._calls[key] = self._signatures.problems(*key)
        for rule, message in problems:
            self._log.add(node.lineno, rule, message)

    def _check_function(self, node: ast.FunctionDef) -> None:
        """Nested functions are the bodies of hardware loops, which exist from NKI 0.6 on."""
        nested = id(node) not in self._top_level
        if nested and self._signatures.missing_versions(LANGUAGE, "fori_loop"):
            self._log.add(node.lineno, "subset", "nested functions need NKI 0.6")


def _is_constant(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or assigns names."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Assign) and all(
        isinstance(target, ast.Name) for target in statement.targets
    )


def _partly_allowed(node: ast.For | ast.With | ast.FormattedValue) -> Iterator[tuple[int, str]]:
    """Say what is wrong with a form that is in the subset only in part."""
    if isinstance(node, ast.For) and node.orelse:
        yield node.orelse[0].lineno, "else of a loop is not in the subset"
    if isinstance(node, ast.With):
        items = [ast.unparse(item.context_expr) for item in node.items]
        if items != ["nl.no_reorder()"] or node.items[0].optional_vars is not None:
            yield node.lineno, "with is only for nl.no_reorder()"
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        yield node.lineno, "format specifications are not in the subset"


def check_text(source: str, nki: str = "0.6") -> tuple[Violation, ...]:
    """Say what is wrong with a kernel's text for the NKI versions asked for, without running it."""
    return ParsedKernel(source, "<kernel>", Signatures(parse_versions(nki))).log.sorted()
