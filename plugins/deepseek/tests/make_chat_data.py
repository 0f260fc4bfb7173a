"""Fills in what the official encoders print for the requests in tests/data/chat/prompts-*.json.

    python plugins/deepseek/tests/make_chat_data.py encoding_dsv4.py encoding_dsv32.py

takes the encoders, plain Python files that lie beside the published weights (folder `encoding`). Requests that an encoder
refuses are an error here: they belong into test_prompt.py.
"""

from __future__ import annotations

import copy
import json
import runpy
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "chat"


def render(encoder: dict[str, Any], request: dict[str, Any]) -> str:
    """The prompt. Declared tools are put on the first system message, an empty one if there is none."""
    messages = [{k: v for k, v in message.items() if v is not None} for message in copy.deepcopy(request["messages"])]
    tools = request.get("tools") if request.get("tool_choice") != "none" else None
    if tools:
        system = next((message for message in messages if message["role"] == "system"), None)
        if system is None:
            system = {"role": "system", "content": ""}
            messages.insert(0, system)
        system["tools"] = tools
    words = request["chat_template_kwargs"]
    known = {key: words[key] for key in ("drop_thinking", "reasoning_effort") if key in words}
    text = str(encoder["encode_messages"](messages, words["thinking_mode"], **known))
    return text.removesuffix(encoder["eos_token"]) if request.get("continue_final_message") else text


def main() -> None:
    for name, path in zip(("deepseek-v4", "deepseek-v3.2"), sys.argv[1:], strict=True):
        file, encoder = DATA / f"prompts-{name}.json", runpy.run_path(path)
        cases = json.loads(file.read_text(encoding="utf-8"))
        filled = [{**case, "rendered": render(encoder, case["request"])} for case in cases]
        file.write_text(json.dumps(filled, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
