"""The kinds of attention that a model may have, as pages and pictures call them."""

ATTENTION_KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
