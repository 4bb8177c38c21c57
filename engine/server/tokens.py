"""POST /tokenize and /detokenize, in vLLM's shapes."""

from __future__ import annotations

from octavo.engine.sampling_params import check_token_ids
from octavo.engine.server.generate import extra_headers
from octavo.engine.server.http import Request, Response, bad_request, json_response
from octavo.engine.server.schema import DetokenizeBody, TokenizeBody, decode
from octavo.engine.server.state import ServerState


class TokenEndpoints:
    """Both handlers."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def tokenize(self, request: Request) -> Response:
        """{prompt | messages} -> {count, max_model_len, tokens, token_strs}."""
        body = decode(TokenizeBody, request.body)
        model = self._state.model()
        self._state.check_name(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise bad_request("send either prompt or messages", "prompt", "missing_field")
        if body.prompt is not None:
            for name in ("add_generation_prompt", "continue_final_message", "chat_template_kwargs"):
                if getattr(body, name) is not None:
                    raise bad_request(f"{name} goes with messages, not with prompt; remove it", name)
            tokens = await model.prompts.encode(body.prompt, body.add_special_tokens is not False)
        else:
            if body.add_special_tokens is not None:
                raise bad_request("add_special_tokens goes with prompt; the template adds them", "add_special_tokens")
            tokens = await model.prompts.chat(
                body.messages or [],
                add_generation_prompt=body.add_generation_prompt is not False,
                continue_final_message=bool(body.continue_final_message),
                template_kwargs=body.chat_template_kwargs,
            )
        names = [model.text.tokenizer.token(token) for token in tokens] if body.return_token_strs else None
        limit = model.engine.info.max_model_len
        answer = {"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": names}
        return json_response(answer, 200, extra_headers(body))

    async def detokenize(self, request: Request) -> Response:
        """{tokens} -> {prompt}."""
        body = decode(DetokenizeBody, request.body)
        model = self._state.model()
        self._state.check_name(body.model)
        check_token_ids("tokens", body.tokens, model.text.tokenizer.vocab_size)
        return json_response({"prompt": model.text.tokenizer.decode(body.tokens, skip_special=False)})
