"""The Jinja environment that chat templates run in: sandboxed, budgeted, and aware of whose text it handles.

Built on Jinja's ImmutableSandboxedEnvironment with the extras that templates of model hubs expect (`raise_exception`,
`strftime_now`, `tojson` without HTML escapes, loop controls, the `generation` tag). On top:
- Loops are rewritten in the syntax tree to pass through a counting iterator; calls, filters and operators go through
  hooks that count, predict sizes and keep marks (marked.py). Attributes with a leading underscore are refused, as is
  storing them.
- Nothing reaches outside: no loader, no includes, no random choice, no lipsum; the clock only through `strftime_now`.

This module imports jinja2 (about 0.1 s), so it is imported at the first compilation only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from octavo.engine.text.marked import Marked, concat, format_percent, remark
from octavo.engine.text.template_budget import Budget, current_budget
from octavo.engine.text.template_filters import (
    CHOOSING,
    FILTERS,
    join_pieces,
    join_strings,
    mark_format,
    new_dict,
    raise_exception,
    strftime_now,
    text_of,
    unmarked,
)

_COUNTED, _JOINED = "octavo_counted", "octavo_joined"
_STRING_METHODS = frozenset(name for name in dir(str) if not name.startswith("_")) - {
    "encode",
    "translate",
    "maketrans",
}


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks answers for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012  (the base class's own form)

    def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _SafeNamespace(Namespace):
    """`namespace()`: refuses names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # all positional, so that `namespace(self=...)` works
        self = args[0]
        values = dict(*args[1:], **kwargs)
        for name in values:
            _refuse_private(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        Namespace.__setitem__(self, name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a template may not store the attribute {name!r}; names begin with a letter")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """See the module text. One per process is enough; it holds no state of a rendering."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(concat)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=text_of)
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)
        for name in ("random", "urlize", "xmlattr", "pprint"):
            self.filters.pop(name, None)
        self.globals.update(
            raise_exception=raise_exception,
            strftime_now=strftime_now,
            namespace=_SafeNamespace,
            dict=new_dict,
        )
        for name, function in {**self.filters, **FILTERS}.items():
            self.filters[name] = _hooked(name, function)
        self.filters[_COUNTED] = lambda items: current_budget().each(items)
        self.filters[_JOINED] = join_pieces

    def compile_template(self, source: str) -> jinja2.Template:
        """Raises jinja2.TemplateSyntaxError."""
        tree = self.parse(source)
        for unwanted in tree.find_all(
            (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.EvalContextModifier)
        ):
            raise jinja2.TemplateSyntaxError(
                "a chat template may not load other templates or switch escaping on", unwanted.lineno
            )
        _rewrite(tree)
        tree.set_environment(self)
        code = self.compile(tree)
        return self.template_class.from_code(self, code, self.make_globals(None))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Strings and containers have the methods of their built-in type, minus those that leave text; numbers have
        none."""
        if isinstance(obj, str):
            return attr in _STRING_METHODS
        if isinstance(obj, (bytes, int, float)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        raise SecurityError(f"a template may not read the attribute {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, sandboxed by Jinja, checked for widths first and marked afterwards."""
        plain = super().wrap_str_format(value)
        if plain is None:
            return None
        owner, name = value.__self__, value.__name__

        def wrapper(*args: Any, **kwargs: Any) -> str:
            if name == "format_map":
                kwargs = dict(args[0])
                args = args[:0]
            current_budget().check_call("format", owner, args, kwargs)
            sandboxed = ImmutableSandboxedEnvironment.wrap_str_format(self, unmarked(owner).format)
            if sandboxed is None:
                raise SecurityError("this string cannot be formatted in a template")
            return mark_format(owner, args, kwargs, sandboxed(*args, **kwargs))

        return wrapper

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current_budget()
        budget.check_binary(operator, left, right)
        if operator == "%" and isinstance(left, str):
            result: Any = format_percent(left, right)
        else:
            result = super().call_binop(context, operator, left, right)
        budget.check_result(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        owner = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        budget.check_call(name, owner, args, kwargs)
        if isinstance(__obj, LoopContext) and args:
            args = (budget.each(args[0]), *args[1:])
        if isinstance(owner, str) and name == "join" and args:
            result: Any = join_strings(owner, args[0])
        else:
            if type(owner) is str and any(type(value) is Marked for value in args) and hasattr(Marked, name):
                __obj = getattr(Marked(owner, 0), name)
            result = super().call(__context, __obj, *args, **kwargs)
            # Macros run through these hooks themselves; containers and constructors hand on marked items.
            is_exact = isinstance(__obj, (type, LoopContext, Macro)) or isinstance(owner, (dict, list, tuple))
            if not is_exact and type(result) is not Marked:
                result = remark(result, (owner, *args, *kwargs.values()))
        budget.check_result(result)
        return result


def _rewrite(tree: nodes.Template) -> None:
    """Send every loop through the counter and every `~` through the marked join."""
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    _replace_concats(tree)


def _replace_concats(node: nodes.Node) -> None:
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            _replace_concats(value)
            if isinstance(value, nodes.Concat):
                setattr(node, name, _joined(value))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, nodes.Node):
                    _replace_concats(item)
                    if isinstance(item, nodes.Concat):
                        value[place] = _joined(item)


def _joined(node: nodes.Concat) -> nodes.Filter:
    pieces = nodes.List(node.nodes, lineno=node.lineno)
    return nodes.Filter(pieces, _JOINED, [], [], None, None, lineno=node.lineno)


def _hooked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts, predicts its size and keeps marks. Its first argument after Jinja's own is the value."""
    num_own = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget()
        values = args[num_own:]
        budget.check_call(name, values[0] if values else None, values[1:], kwargs)
        result = function(*args, **kwargs)
        if name not in CHOOSING and type(result) is not Marked:
            result = remark(result, (*values, *kwargs.values()))
        budget.check_result(result)
        return result

    return wrapper


@functools.lru_cache(maxsize=1)
def _environment() -> TemplateEnvironment:
    return TemplateEnvironment()


def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template in the shared environment. Raises jinja2.TemplateSyntaxError."""
    return _environment().compile_template(source)


def run_template(template: jinja2.Template, context: dict[str, Any], budget: Budget) -> str:
    """One rendering, within `budget`; a `Marked` string if any of the text came from the context's marked strings."""
    with budget.in_use():
        pieces = []
        num_chars = 0
        for piece in template.root_render_func(template.new_context(context)):
            pieces.append(piece)
            num_chars += len(piece)
            budget.check_chars(num_chars)
        return concat(pieces)
