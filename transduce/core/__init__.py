"""The heart: the paper and its relatives, tensors in, tensors out. It trains and translates by itself (`learn.py`,
`search.py`), and imports nothing else of this house but errors and the sections of settings, by which models are built.

Shape letters used throughout: R rows of a batch, T tokens of a row (S on the source side where both occur),
D = d_model, H heads, K = d_k, V = d_v.
"""
