"""What runs once a word, compiled by numba: the same as plain.py and ngrams.py, without Python between the numbers.

The compiled code is kept on the disk beside these files (or in the user's cache, where they cannot be written)."""
