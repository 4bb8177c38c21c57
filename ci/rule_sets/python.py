"""Rules about Python sources: sizes, environment, platform names, code that runs data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ci.rule_sets.tree import Tree

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
#: function -> why it may be longer
LONG_FUNCTIONS = {"engine/request.py:Request.__init__": "one line per field of a request, in the order of its slots"}
ENVIRONMENT_HOME = "engine/config.py"
PLATFORM_NAMES = {"reference", "portable", "cpu", "x86", "arm", "rocm", "cuda", "x86_64", "amd64", "aarch64", "arm64"}
DANGEROUS_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch"}
TORCH_HOME = "platforms/gpu/torch_base/runtime.py"
DANGEROUS_CALLS = {"eval", "exec", "compile", "__import__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield f"{prefix}{child.name}", child
            inner = f"{prefix}{child.name}." if isinstance(child, Function | ast.ClassDef) else prefix
            yield from walk(child, inner)

    yield from walk(tree, "")


def function_lines(function: Function) -> int:
    """Lines of a function without its docstring and decorators."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def python_sizes(tree: Tree) -> Iterator[str]:
    """Files of at most 400 lines, functions of at most 60."""
    for path in tree.select(ends=".py"):
        lines = tree.text(path).count("\n")
        if lines > MAX_FILE_LINES:
            yield f"{path}: {lines} lines; at most {MAX_FILE_LINES}; split it by concept"
        for name, function in _functions(tree.syntax(path)):
            length = function_lines(function)
            if length > MAX_FUNCTION_LINES and f"{path}:{name}" not in LONG_FUNCTIONS:
                yield f"{path}:{function.lineno}: {name} has {length} lines; at most {MAX_FUNCTION_LINES}; split it"


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv")


def environment_in_one_place(tree: Tree) -> Iterator[str]:
    """Only engine/config.py reads OCTAVO_ variables; elsewhere a name must be another program's, spelled out."""
    for path in tree.package_files():
        if path == ENVIRONMENT_HOME:
            continue
        for node in ast.walk(tree.syntax(path)):
            keys: list[ast.expr] = []
            if isinstance(node, ast.Subscript) and _is_environment(node.value):
                keys = [node.slice]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if _is_environment(node.func) or (
                    _is_environment(node.func.value) and node.func.attr in ("get", "pop")
                ):
                    keys = node.args[:1]
            elif isinstance(node, ast.Compare) and any(map(_is_environment, node.comparators)):
                keys = [node.left]
            for key in keys:
                name = key.value if isinstance(key, ast.Constant) else None
                if not isinstance(name, str) or name.startswith("OCTAVO_"):
                    shown = name or ast.unparse(key)
                    yield f"{path}:{key.lineno}: reads {shown} from the environment; take it from {ENVIRONMENT_HOME}"


def _named_platform(node: ast.AST) -> str:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.lower() in PLATFORM_NAMES:
            return str(part.value)
    return ""


def no_platform_tests(tree: Tree) -> Iterator[str]:
    """Only platforms/ knows which chip runs: no comparison with a platform's name, no import of one, elsewhere."""
    for path in tree.select("engine", "quant", "src/octavo", ends=".py"):
        for node in ast.walk(tree.syntax(path)):
            name = ""
            if isinstance(node, ast.Compare):
                name = next(filter(None, map(_named_platform, [node.left, *node.comparators])), "")
            elif isinstance(node, ast.MatchValue):
                name = _named_platform(node.value)
            if name:
                yield f"{path}:{node.lineno}: compares with the platform {name!r}; let platforms/ answer the question"  # type: ignore[attr-defined]
            for module in _imports(node):
                family = module.removeprefix("octavo.platforms.").split(".")[0]
                if module.startswith("octavo.platforms.") and family in PLATFORM_NAMES:
                    yield f"{path}:{node.lineno}: imports {module}; platforms are reached through registry.py"  # type: ignore[attr-defined]


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


def no_code_from_data(tree: Tree) -> Iterator[str]:
    """Nothing in the installed package runs code that came as data, and one file alone takes the user's torch, by name."""
    for path in tree.package_files():
        for node in ast.walk(tree.syntax(path)):
            for module in _imports(node):
                if module.split(".")[0] in DANGEROUS_MODULES:
                    yield f"{path}:{node.lineno}: imports {module}; the package may not"  # type: ignore[attr-defined]
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            named = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            if called.endswith("import_module") and named in DANGEROUS_MODULES and path != TORCH_HOME:
                yield f"{path}:{node.lineno}: imports {named}; the package may not"
            if called in DANGEROUS_CALLS or called == "torch.load":
                yield f"{path}:{node.lineno}: calls {called}; the package may not"
            for keyword in node.keywords:
                is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and is_true:
                    yield f"{path}:{node.lineno}: {called} with {keyword.arg}=True; the package may not"


RULES = (python_sizes, environment_in_one_place, no_platform_tests, no_code_from_data)
