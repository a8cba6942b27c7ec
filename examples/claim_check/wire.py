"""The two shapes in which a model is asked and answers.

`chat` is OpenAI's chat completions, which many servers speak; `responses` is their successor."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from examples.claim_check.report import Citation
from examples.claim_check.urls import is_web_address

PATHS = {"chat": "/chat/completions", "responses": "/responses"}


class Reply(NamedTuple):
    text: str
    citations: tuple[Citation, ...]  # the sources that stand beside the text
    model: str  # "" if it isn't said
    cut: bool  # the server stopped the model before its end


class NoAnswer(ValueError):
    """The reply is no answer in this shape."""


def request(shape: str, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    """The body to send. `preset:NAME` asks for a preset instead of a model."""
    preset = model.removeprefix("preset:")
    asked = {"model": model} if preset == model else {"preset": preset}
    if shape == "chat":
        return {**asked, "messages": [_message(message, _chat_picture) for message in messages]}
    return {**asked, "input": [_message(message, _responses_picture) for message in messages], "store": False}


def read(shape: str, body: bytes) -> Reply:
    """What the reply says, or NoAnswer."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"the reply is not JSON: {error}") from None
    try:
        text, sources, cut = (_read_chat if shape == "chat" else _read_responses)(reply)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise NoAnswer(f"the reply is not an answer in the shape {shape}: {excerpt(body)}") from None
    citations = tuple(citation for source in sources if (citation := _citation(source)))
    return Reply(_storable(text), citations, _storable(reply.get("model")), cut)


def excerpt(body: bytes) -> str:
    """The beginning of a reply, in one line, to be shown."""
    text = " ".join(_storable(body[:1000].decode("utf-8", "replace")).split())
    return text[:200] or "(nothing)"


def _message(message: dict[str, str], picture: Any) -> dict[str, Any]:
    if "image_url" not in message:
        return {"role": message["role"], "content": message["content"]}
    return {"role": message["role"], "content": picture(message["content"], message["image_url"])}


def _chat_picture(text: str, url: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]


def _responses_picture(text: str, url: str) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]


def _read_chat(reply: dict[str, Any]) -> tuple[str, list[Any], bool]:
    """Text, sources, and whether the text was cut."""
    choice = reply["choices"][0]
    message = choice["message"]
    sources = [*(reply.get("search_results") or []), *(reply.get("citations") or [])]
    text = message["content"] + ""  # TypeError: it is no text
    return (
        text,
        sources + (message.get("annotations") or []),
        choice.get("finish_reason") in ("length", "content_filter"),
    )


def _read_responses(reply: dict[str, Any]) -> tuple[str, list[Any], bool]:
    if reply.get("status") == "failed":
        raise NoAnswer(f"the model failed: {excerpt(json.dumps(reply.get('error')).encode())}")
    text = ""
    annotations: list[Any] = []
    results: list[Any] = []
    for item in reply["output"]:
        if item["type"] == "search_results":
            results += item["results"]
        elif item["type"] == "message":
            for part in item["content"]:
                if part["type"] == "output_text":
                    text += part["text"]
                    annotations += part.get("annotations") or []
    if not text:
        raise KeyError("output_text")
    return text, annotations + results, reply.get("status") == "incomplete"


def _citation(source: Any) -> Citation | None:
    """A source is a URL, or an object with a `url`, or one inside of `url_citation`."""
    if isinstance(source, dict):
        inner = source.get("url_citation")
        source = inner if isinstance(inner, dict) else source
    else:
        source = {"url": source}
    url = _storable(source.get("url"))
    if not is_web_address(url):
        return None
    title, snippet = (" ".join(_storable(source.get(name)).split()) for name in ("title", "snippet"))
    return Citation(url, title, snippet)


def _storable(text: Any) -> str:
    """The text without what no database keeps: NUL, and halves of characters. What is no text is empty."""
    return text.replace("\0", "").encode("utf-8", "replace").decode() if isinstance(text, str) else ""
