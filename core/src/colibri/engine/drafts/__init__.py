"""Speculation: tokens that are guessed, computed beside the next one, and kept where they turn out to be right.

A row's token is a function of its logits, the request's seed and the number of the draw, and its logits are a function of
the tokens before it. So verifying is comparing: the rows [token, d1 .. dk] of a request each pick a token, with the number
that it will have in the answer. While the token picked is the next draft, the row behind it had the very tokens before it
that it would have had alone, and what it picks is what it would have picked. The first token that is no draft still counts,
and the rows behind it are taken back. Hence an answer is the same with drafts or without, token by token, greedy or sampled
by any temperature, top-p, top-k or min-p. A request without a seed gets one when it comes in, at random and whatever is
drafted later: as each seed's answer is the same, so is the distribution of answers.

`source.py` says what proposes drafts, `lookup.py` and `head.py` do, `pace.py` and `odds.py` measure what they cost and how
often they are right, and `choice.py` decides by that how many are worth their time.
"""
