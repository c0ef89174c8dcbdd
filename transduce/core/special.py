"""Special tokens: the same ids in every vocabulary."""

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_SURFACE = "⁇"
MADE = "↩"  # before a source that a model has made, so that the next one can tell (Caswell et al., 2019)
