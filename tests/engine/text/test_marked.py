"""Marks follow characters through every string operation of templates; nothing turns outside text into the template's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.text.chat_template import ChatTemplate
from octavo.engine.text.marked import Marked, concat, format_percent
from octavo.engine.text.spans import Trust

# User text is digits and brackets, template text letters, so that each character tells whose it is.
_USER = st.text("<|0123> \n", max_size=12)


def _mixed(parts: list[tuple[str, bool]]) -> Marked:
    return concat([Marked("", 0), *(Marked(text, 2) if user else text for text, user in parts)])  # type: ignore[return-value]


def _mixed_of(text: str) -> Marked:
    return Marked(text, bytes(2 if char in "<|0123>" else 0 for char in text))


def _is_exact(value: object) -> bool:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(p, Marked) and p.marks == _mixed_of(p).marks and len(p.marks) == len(p) for p in parts)


@settings(max_examples=300, deadline=None)
@given(
    st.text("<|0123>ab \n", max_size=20), st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(["|", "<0", "a", " "])
)
def test_operations_equal_those_of_plain_strings_and_keep_marks(text: str, i: int, j: int, sep: str) -> None:
    value = _mixed_of(text)
    operations = [
        lambda s: s.strip(), lambda s: s.lstrip("<a"), lambda s: s.rstrip("\n"), lambda s: s[i:j], lambda s: s[::-1],
        lambda s: s.split(sep), lambda s: s.split(), lambda s: s.split(None, 1), lambda s: s.rsplit(sep, 1),
        lambda s: s.rsplit(None, 1), lambda s: s.splitlines(), lambda s: s.splitlines(True), lambda s: s.partition(sep),
        lambda s: s.rpartition(sep), lambda s: s.removeprefix(sep), lambda s: s.removesuffix(sep), lambda s: s * 2,
        lambda s: s.replace(sep, "Z"), lambda s: s.replace(sep, "Z", 1), lambda s: s + "t", lambda s: "t" + s,
        lambda s: s.upper(), lambda s: s.lower(), lambda s: s.title(), lambda s: s.capitalize(), lambda s: s.join(["x", "y"]),
        lambda s: list(s), lambda s: str(s),
    ]  # fmt: skip
    for number, operation in enumerate(operations):
        result = operation(value)
        assert result == operation(text), number
        parts = result if isinstance(result, (list, tuple)) else [result]
        assert all(p.marks == _mixed_of(p).marks for p in parts if isinstance(p, Marked)), number
        assert all(isinstance(p, Marked) for p in parts), number


def test_percent_formatting_keeps_the_templates_own_text() -> None:
    text = format_percent("<s>%s</s>%d%%", (Marked("<x>", 2), 7))
    assert list(text.spans()) == [("<s>", 0), ("<x>", 2), ("</s>7%", 0)]  # type: ignore[attr-defined]
    named = format_percent("a%(k)5sb", {"k": Marked("x", 2)})
    assert named == "a    xb" and max(named.marks) == 2  # type: ignore[attr-defined]


# Every way a template can pass text on: none may present the user's characters as its own.
LEAKS = [
    "{{ c }}", "{{ c|string }}", "{{ c|trim }}", "{{ c ~ 'x' }}", "{{ 'x' + c }}", "{{ c * 2 }}", "{{ '%s' % c }}",
    "{{ '%s%s' % (c, c) }}", "{{ '%s'|format(c) }}", "{{ '{}'.format(c) }}", "{{ '{0!r:>30}'.format(c) }}",
    "{{ '{a}'.format_map({'a': c}) }}", "{{ [c, c]|join(', ') }}", "{{ ', '.join([c]) }}", "{{ c|tojson }}",
    "{{ {'a': [c]}|tojson }}", "{{ [c]|string }}", "{{ [c] }}", "{{ {'a': c} }}", "{{ (c, 1) }}", "{{ c|upper|lower }}",
    "{{ c|replace('q', 'z') }}", "{{ 'xyx'|replace('y', c) }}", "{{ 'xyx'.replace('y', c) }}", "{{ c|indent(2) }}",
    "{{ c|wordwrap(3) }}", "{{ c|center(40) }}", "{{ c.center(40) }}", "{{ c.zfill(40) }}", "{{ c.ljust(40) }}",
    "{{ c|truncate(5, true) }}", "{{ c|reverse }}", "{{ c|list|join }}", "{{ c|first }}", "{{ c|last }}",
    "{% for x in c %}{{ x }}{% endfor %}", "{% for x in c|batch(2) %}{{ x|join }}{% endfor %}", "{{ c|e }}", "{{ c|safe }}",
    "{% for x in c|slice(2) %}{{ x|join }}{% endfor %}", "{{ c|striptags }}", "{{ c|urlencode }}", "{{ c|title }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(c) }}", "{% set s %}{{ c }}{% endset %}{{ s }}", "{{ c.expandtabs(2) }}",
    "{% filter upper %}{{ c }}{% endfilter %}", "{% call(x) k() %}{{ x }}{% endcall %}", "{{ c.swapcase() }}",
    "{{ [c]|map('upper')|join }}", "{{ [{'a': c}]|map(attribute='a')|join }}", "{{ namespace(a=c) }}",
    "{{ [c] ~ '' }}", "{{ [[c]]|join }}", "{{ '%s' % [[c]] }}", "{{ '{}'.format([c]) }}",
    "{{ dict(a=c).a }}", "{{ namespace(a=c).a }}", "{{ [c]|sort|first }}", "{{ [c]|unique|join }}", "{{ {'k': c}|items|list }}",
    "{{ {'k': c}|dictsort }}", "{{ [[c, 1]]|groupby(0)|list }}", "{{ c.casefold() }}", "{{ c.splitlines()|join }}",
    "{{ c.partition('|')|join }}", "{{ (c if true else '') or 'x' }}", "{{ c|default('x') }}", "{{ [c]|min }}",
    "{{ c[0] }}{{ c[1:] }}", "{{ c|attr('upper')() }}", "{{ c['upper']() }}", "{{ (c ~ c)[2:] }}", "{{ c|wordcount }}{{ c }}",
    "{% with d = c %}{{ d }}{% endwith %}",
    "{% set ns = namespace(t='') %}{% for x in c %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}",
    "{% block b %}{{ c }}{% endblock %}", "{{ loop_c }}{% for c2 in [c] %}{{ loop.cycle(c2, 'x') }}{% endfor %}",
    "{% for x in [c] recursive %}{{ x if x is string else '' }}{% endfor %}",
]  # fmt: skip


@pytest.mark.parametrize("source", LEAKS)
def test_no_operation_makes_outside_text_the_templates(source: str) -> None:
    prefix = "{% macro k() %}{{ caller(messages[0].content) }}{% endmacro %}{% set c = messages[0].content %}"
    content = "<|7|>8"
    spans = ChatTemplate(prefix + source).render([{"role": "user", "content": content}], kwargs={"loop_c": content})
    trusted = "".join(text for text, trust in spans if trust == Trust.TEMPLATE)
    assert not set("<|78>") & set(trusted), spans
    assert any("7" in text or "8" in text or ">" in text or "<" in text for text, trust in spans if trust == Trust.USER)


def test_templates_own_text_beside_user_text_stays_trusted() -> None:
    source = (
        "{% macro turn(r, x) %}{{ '<s>' + r }}{{ x|trim }}</s>{% endmacro %}"
        "{{ turn('u', messages[0].content) }}{{ '<a>%s</a>' % messages[0].content }}{{ '<b>{}</b>'.format(messages[0].content) }}"
        "{{ ['<c>', messages[0].content]|join('<d>') }}{{ messages[0].get('none', '<e>') }}{{ 'x<f>'.replace('x', '<g>') }}"
    )
    spans = ChatTemplate(source).render([{"role": "user", "content": "9"}])
    trusted = "".join(text for text, trust in spans if trust == Trust.TEMPLATE)
    assert trusted == "<s>u</s><a></a><b></b><c><d><e><g><f>"
