"""Chat templates: messages in, prompt text with its origins out.

One object per model, compiled at first use. `render` gives spans: the template's own text is trusted to spell control
tokens, messages, tools, documents and keyword arguments are not (marked.py), so `Tokenizer.encode_spans` yields the
template's control tokens only. Every rendering has a budget of steps, size and time (template_budget.py).

Errors: RequestError with the template's own words (`raise_exception`) or the reason it failed; ModelError when the
model's template does not compile, or there is none. Nothing is guessed for a model without template: a built-in one is
used only when asked for by name.
"""

from __future__ import annotations

import keyword
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.text.marked import Marked, mark_tree
from octavo.engine.text.messages import check_depth, normalize_messages
from octavo.engine.text.spans import Span, Trust, merge_spans
from octavo.engine.text.template_budget import Budget, TemplateBudgetError, TemplateLimits

if TYPE_CHECKING:
    from octavo.engine.text.tokenizer import Tokenizer

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PLAIN = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
BUILTIN_TEMPLATES = {"chatml": _CHATML, "plain": _PLAIN}

# Names a request may not set: what the engine itself passes, and what would replace a template's helpers.
_OWN_NAMES = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
_HELPERS = frozenset(
    {"raise_exception", "strftime_now", "range", "dict", "namespace", "loop", "self", "caller", "varargs"}
)
_MAX_KWARGS = 64
_PROBE = "octavoprobe"
_MAX_KWARG_ITEMS = 4096
_PROBED_ROLES = (("user",), ("query", "document"))  # of chats, and of rerankers


class ChatTemplate:
    """A model's chat template, or several by name ("default", "tool_use")."""

    def __init__(
        self,
        source: str | Mapping[str, str],
        *,
        special_tokens: Mapping[str, str] | None = None,
        limits: TemplateLimits | None = None,
        allow_request_template: bool = False,
    ) -> None:
        """`special_tokens`: variables such as bos_token. `allow_request_template`: the operator lets requests bring
        their own template in `chat_template_kwargs` (still sandboxed and budgeted)."""
        self.sources = {"default": source} if isinstance(source, str) else dict(source)
        self._special_tokens = dict(special_tokens or {})
        self._limits = limits or TemplateLimits()
        self._allows_request_template = allow_request_template
        self._compiled: dict[str, Any] = {}
        self._parts_by_source: dict[str, bool] = {}
        self._lock = threading.Lock()

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: Tokenizer,
        *,
        template: str | None = None,
        limits: TemplateLimits | None = None,
        allow_request_template: bool = False,
    ) -> ChatTemplate:
        """The model's own template, or `template`: a built-in's name (chatml, plain) or template text.

        Also guards the tags that the template writes (`Tokenizer.protect_markup`). Raises ModelError if there is none.
        """
        sources = dict(tokenizer.chat_templates)
        if template is not None:
            sources = {"default": BUILTIN_TEMPLATES.get(template, template)}
            if template not in BUILTIN_TEMPLATES and "{" not in template:
                raise ModelError(
                    f"there is no built-in chat template {template!r}; built in are {', '.join(BUILTIN_TEMPLATES)}; "
                    "or give a template's text (--chat-template takes the file that holds it)"
                )
        if not sources:
            raise ModelError(
                "this model has no chat template; use the completions API, or name a built-in template "
                f"({', '.join(BUILTIN_TEMPLATES)}) or a template file when starting"
            )
        if "default" not in sources:
            sources["default"] = next(iter(sources.values()))
        for source in sources.values():
            tokenizer.protect_markup(source)
        named = {"bos_token": tokenizer.bos_id, "pad_token": tokenizer.pad_id, "unk_token": tokenizer.unk_id}
        named["eos_token"] = tokenizer.eos_ids[0] if tokenizer.eos_ids else None
        tokens = {name: "" if index is None else tokenizer.token(index) for name, index in named.items()}
        return cls(sources, special_tokens=tokens, limits=limits, allow_request_template=allow_request_template)

    def compile(self) -> None:
        """Compile now instead of at the first request. Raises ModelError with the line that is wrong."""
        for source in self.sources.values():
            self._template(source, is_from_request=False)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Span]:
        """The prompt of a conversation as spans of (text, Trust).

        `kwargs`: the request's chat_template_kwargs, such as enable_thinking. `continue_final_message` ends the prompt
        inside the last message, so that the model goes on with it; then `add_generation_prompt` must be False.
        """
        variables = dict(kwargs or {})
        source, is_from_request = self._choose(variables, has_tools=bool(tools))
        _check_kwargs(variables)
        if continue_final_message and add_generation_prompt:
            raise RequestError(
                "continue_final_message and add_generation_prompt exclude each other; set one of them to false",
                param="continue_final_message",
            )
        template = self._template(source, is_from_request=is_from_request)
        cut = f"octavo{os.urandom(12).hex()}end" if continue_final_message else ""
        normal = normalize_messages(
            messages,
            knows_developer="developer" in source,
            as_parts=self._takes_parts(source, template),
            ending=cut,
        )
        for name, value in (("tools", tools), ("documents", documents)):
            check_depth(value, name)
        context = {
            **self._special_tokens,
            **mark_tree(variables, Trust.USER),
            "messages": normal,
            "tools": mark_tree(list(tools), Trust.USER) if tools else None,
            "documents": mark_tree(list(documents), Trust.USER) if documents else None,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
        }
        output = self._run(template, context)
        if cut:
            place = output.find(cut)
            if place < 0:
                raise RequestError(
                    "this model's chat template does not print the last message, so it cannot be continued",
                    param="continue_final_message",
                )
            output = output[:place]
        return merge_spans(output.spans()) if isinstance(output, Marked) else merge_spans([(output, Trust.TEMPLATE)])

    def _choose(self, variables: dict[str, Any], *, has_tools: bool) -> tuple[str, bool]:
        """The template's text, and whether the request brought it."""
        given = variables.pop("chat_template", None)
        if given is None:
            name = "tool_use" if has_tools and "tool_use" in self.sources else "default"
            return self.sources[name], False
        if not self._allows_request_template:
            raise RequestError(
                "chat_template_kwargs.chat_template is not allowed here; the operator can allow it at server start",
                param="chat_template_kwargs",
                code="template_not_allowed",
            )
        if not isinstance(given, str) or len(given) > 100_000:
            raise RequestError(
                "chat_template must be a string of at most 100000 characters", param="chat_template_kwargs"
            )
        return given, True

    def _template(self, source: str, *, is_from_request: bool) -> Any:
        found = self._compiled.get(source)
        if found is not None:
            return found
        from octavo.engine.text.sandbox import compile_template

        try:
            template = compile_template(source)
        except Exception as error:
            reason = f"the chat template does not compile: {error}"
            if is_from_request:
                raise RequestError(reason, param="chat_template_kwargs", code="template_error") from error
            raise ModelError(f"{reason}; name another template when starting") from error
        if not is_from_request:
            with self._lock:
                self._compiled[source] = template
        return template

    def _takes_parts(self, source: str, template: Any) -> bool:
        """Whether the template prints contents only as lists of parts, found out by trying both once."""
        known = self._parts_by_source.get(source)
        if known is None:
            known = not self._prints(template, _PROBE) and self._prints(template, [{"type": "text", "text": _PROBE}])
            if source in self._compiled:
                self._parts_by_source[source] = known
        return known

    def _prints(self, template: Any, content: Any) -> bool:
        return any(self._prints_roles(template, content, roles) for roles in _PROBED_ROLES)

    def _prints_roles(self, template: Any, content: Any, roles: Sequence[str]) -> bool:
        messages = [{"role": role, "content": content} for role in roles]
        context = {**self._special_tokens, "messages": messages, "tools": None, "documents": None}
        try:
            return _PROBE in self._run(template, {**context, "add_generation_prompt": True})
        except TemplateBudgetError:
            raise
        except RequestError:
            return False

    def _run(self, template: Any, context: dict[str, Any]) -> str:
        from octavo.engine.text.sandbox import run_template
        from octavo.engine.text.template_filters import TemplateRefusal

        try:
            return run_template(template, context, Budget(self._limits))
        except RequestError:
            raise
        except TemplateRefusal as error:
            raise RequestError(str(error), param="messages", code="template_refusal") from error
        except RecursionError as error:
            raise RequestError(
                "the chat template recurses too deep", param="messages", code="template_budget"
            ) from error
        except MemoryError as error:
            raise RequestError(
                "the chat template ran out of memory", param="messages", code="template_budget"
            ) from error
        except Exception as error:  # a template's own mistakes surface as any exception; all are the request's to know
            text = str(error) or type(error).__name__
            raise RequestError(
                f"the chat template failed on these messages: {text}", param="messages", code="template_error"
            ) from error


def _check_kwargs(variables: Mapping[str, Any]) -> None:
    """Names and sizes of chat_template_kwargs. Unknown harmless names pass: a template ignores what it does not
    read."""
    param = "chat_template_kwargs"
    if len(variables) > _MAX_KWARGS:
        raise RequestError(f"{param} has {len(variables)} entries; at most {_MAX_KWARGS} are allowed", param=param)
    for name, value in variables.items():
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise RequestError(f"{param} has the name {name!r}; names are plain identifiers", param=param)
        if name in _OWN_NAMES or name in _HELPERS or name.endswith("_token") or name.startswith("octavo"):
            raise RequestError(
                f"{param}.{name} is set by the server; use the request's own field if it has one", param=param
            )
        check_depth(value, f"{param}.{name}")
        if isinstance(value, (list, Mapping)) and len(value) > _MAX_KWARG_ITEMS:
            raise RequestError(
                f"{param}.{name} has {len(value)} items; at most {_MAX_KWARG_ITEMS} are allowed", param=param
            )
