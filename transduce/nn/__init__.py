"""The paper's pieces: tensors in, tensors out; no settings, no files.

Shape letters used throughout: R rows of a batch, T tokens of a row (S on the source side where both occur),
D = d_model, H heads, K = d_k, V = d_v.
"""
