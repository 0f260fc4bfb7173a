from __future__ import annotations

from colibri.chat.prompt import Prompt, Special, Text, prompt, template_text

CALL, CALL_END = Special("<call>"), Special("</call>")


def test_neighbouring_texts_are_one_and_empty_ones_none() -> None:
    assert prompt(["a", "", Text("b"), CALL, "", CALL]).pieces == (Text("ab"), CALL, CALL)
    assert prompt([]) == Prompt(())


def test_only_the_words_of_a_template_spell_control_tokens() -> None:
    pieces = template_text("Call <call>name</call>, not <b>.", CALL, CALL_END)
    assert prompt([*pieces, "<call>"]).pieces == (Text("Call "), CALL, Text("name"), CALL_END, Text(", not <b>.<call>"))
    assert prompt(template_text("<call><call>x", CALL, Special("<call>x"))).pieces == (CALL, Special("<call>x"))
