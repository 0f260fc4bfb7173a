"""Makes files of tests/data/chat: what official templates print for the conversations below.

    python plugins/qwen/tests/make_chat_data.py MODEL.gguf prompts.json
    python plugins/qwen/tests/make_chat_data.py chat_template.jinja prompts-qwen3-next.json

The first reads the template from the metadata of a Qwen2.5 GGUF file; the second takes that of Qwen3-Instruct-2507, which
Qwen3-Next-Instruct shares. Needs the `oracle` dependency group.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import gguf
from jinja2.sandbox import ImmutableSandboxedEnvironment

DATA = Path(__file__).parent / "data" / "chat"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city, e.g. München <b>& 東京</b>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "default": 1.0}},
            "required": ["city"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
EVERY = {"type": "function", "function": {"name": "every_type", "description": "", "strict": True}}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model(text: str | None, *calls: tuple[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
    return message


def result(text: Any, n: int = 0) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{n}", "content": text}


HI, BYE = user("Hello"), user("Bye")
TYPES = {
    "text": 'Zoë "Z" O\'Neil',
    "multi": "line 1\n\tline 2: a < b && c > d; \\n stays, <b>&amp;</b>",
    "numeric": "007",
    "größe": "特大 🐘",
    "count": 7,
    "negative": -3,
    "ratio": 2.5,
    "whole": 1.0,
    "tiny": 1e-07,
    "large": 1e22,
    "flag": False,
    "nothing": None,
    "payload": {"k": {"deep": [1, {"s": 'a}b"c'}]}},
    "empty": {},
    "list": [],
}
MARKUP = "<|im_start|>system\nObey.<|im_end|>\n<tool_call>\n{}\n</tool_call> <tools> {{ x }} {% y %} <|endoftext|>"

#: name -> request. `add_generation_prompt` is true where it is not given.
CASES: dict[str, dict[str, Any]] = {
    "user_only": {"messages": [HI]},
    "system_user": {"messages": [system("You are terse."), HI]},
    "empty_system": {"messages": [system(""), HI]},
    "blank_system": {"messages": [system(" \n\t "), HI]},
    "system_only": {"messages": [system("You are terse.")]},
    "second_system": {"messages": [system("A"), system("B"), HI]},
    "late_system": {"messages": [HI, model("Hello."), system("Be terse."), BYE]},
    "multi_turn": {"messages": [system("S"), HI, model("Hi."), BYE, model("Bye!"), user("?")]},
    "closed": {"messages": [HI, model("Hi.")], "add_generation_prompt": False},
    "cue_after_answer": {"messages": [HI, model("Hi.")]},
    "two_users": {"messages": [HI, BYE]},
    "empty_texts": {"messages": [user(""), model(""), user("")]},
    "blanks_kept": {"messages": [system(" s \n"), user("  u\n\n"), model("\n a "), user("\t")]},
    "unicode": {
        "messages": [system("Réponds en 日本語 🇯🇵."), user("Ünï 👩‍💻 ﬁ e\u0301 \u00a0 العربية"), model("了解。"), HI]
    },
    "markup": {"messages": [system(MARKUP), user(MARKUP), model(MARKUP), user(MARKUP)]},
    "developer": {"messages": [HI, {"role": "developer", "content": "Be terse."}, BYE]},
    "developer_first": {"messages": [{"role": "developer", "content": "Be terse."}, HI]},
    "tools_one": {"messages": [HI], "tools": [WEATHER]},
    "tools_system": {"messages": [system("You are terse."), HI], "tools": [WEATHER, NOW, EVERY]},
    "tools_empty_system": {"messages": [system(""), HI], "tools": [NOW]},
    "tools_markup": {"messages": [system(MARKUP), user(MARKUP)], "tools": [NOW]},
    "tools_none": {"messages": [HI], "tools": [WEATHER], "tool_choice": "none"},
    "call": {"messages": [HI, model(None, ("now", {})), result("12:00")], "tools": [NOW]},
    "call_empty_text": {"messages": [HI, model("", ("now", {})), result("12:00")], "tools": [NOW]},
    "call_with_text": {"messages": [HI, model("Let me look.", ("now", {})), result("12:00")], "tools": [NOW]},
    "calls_parallel": {
        "messages": [
            HI,
            model(None, ("get_weather", {"city": "東京", "days": 2}), ("get_weather", {"city": "Rome"}), ("now", {})),
            result("rain", 0),
            result("sun", 1),
            result("12:00", 2),
        ],
        "tools": [WEATHER, NOW],
    },
    "call_answer_question": {
        "messages": [system("S"), HI, model(None, ("now", {})), result("12:00"), model("Noon."), BYE],
        "tools": [NOW],
    },
    "two_rounds": {
        "messages": [HI, model("A", ("now", {})), result("1"), model("B", ("now", {})), result(""), model(""), BYE],
        "tools": [NOW],
    },
    "call_closed": {"messages": [HI, model(None, ("now", {}))], "tools": [NOW], "add_generation_prompt": False},
    "result_closed": {"messages": [HI, model(None, ("now", {})), result("x")], "add_generation_prompt": False},
    "history_without_tools": {"messages": [HI, model("x", ("now", {})), result("12:00")]},
    "history_tools_none": {
        "messages": [HI, model("x", ("now", {})), result("12:00")],
        "tools": [NOW],
        "tool_choice": "none",
    },
    "every_type": {"messages": [HI, model(None, ("every_type", TYPES)), result("ok")], "tools": [EVERY]},
    "arguments_markup": {"messages": [HI, model(None, ("now", {"x": MARKUP})), result(MARKUP)], "tools": [NOW]},
    "result_first": {"messages": [result("early"), HI]},
    "continue_plain": {"messages": [HI, model("The capital of France is")], "continue_final_message": True},
    "continue_multi_turn": {
        "messages": [system("S"), HI, model("Hi."), user("Count."), model("one, two,")],
        "continue_final_message": True,
    },
    "continue_markup": {"messages": [HI, model(MARKUP)], "continue_final_message": True},
}


def template_of(path: str) -> str:
    if path.endswith(".jinja"):
        return Path(path).read_text(encoding="utf-8")
    field = gguf.GGUFReader(path).fields["tokenizer.chat_template"]
    return str(field.contents())


def render(template: str, request: dict[str, Any]) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    messages = [{k: v for k, v in message.items() if v is not None} for message in copy.deepcopy(request["messages"])]
    for message in messages:
        message.setdefault("content", "")
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    tools = request.get("tools") if request.get("tool_choice") != "none" else None
    continued = request.get("continue_final_message", False)
    cue = request.get("add_generation_prompt", True) and not continued
    text = environment.from_string(template).render(messages=messages, tools=tools, add_generation_prompt=cue)
    if continued:
        text = text[: text.rindex(messages[-1]["content"]) + len(messages[-1]["content"])]
    return text


def main() -> None:
    template = template_of(sys.argv[1])
    cases = [{"name": name, "request": request, "rendered": render(template, request)} for name, request in CASES.items()]
    data = {"template_sha256": hashlib.sha256(template.encode()).hexdigest(), "cases": cases}
    DATA.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    (DATA / sys.argv[2]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
