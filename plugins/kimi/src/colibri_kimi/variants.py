"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

from colibri.family import Capabilities, Variant

#: How much Kimi K3 can be told to think, weakest first.
EFFORTS = ("low", "high", "max")

KIMI_K3 = Variant(
    "kimi-k3",
    "Kimi K3",
    Capabilities(
        tools="native",
        tool_choice="narrow",
        strict_tools=True,
        thinking="optional",
        thinks=True,
        efforts=EFFORTS,
        preserve=True,
        continuation=True,
    ),
)

KIMI_LINEAR = Variant(
    "kimi-linear",
    "Kimi Linear",
    Capabilities(tools="native", tool_choice="narrow", strict_tools=True, continuation=True),
)

VARIANTS = (KIMI_K3, KIMI_LINEAR)

#: Variants by the `model_type` of config.json. K3's own `text_config` calls itself kimi_linear: only the outer one counts.
BY_MODEL_TYPE = {"kimi_k3": KIMI_K3, "kimi_linear": KIMI_LINEAR}
