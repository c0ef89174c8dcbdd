"""Special tokens: the same ids in every vocabulary."""

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_SURFACE = "⁇"
