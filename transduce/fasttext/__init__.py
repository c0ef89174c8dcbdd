"""Word vectors and the fast classifier: fastText's job, with its files and its answers.

dictionary.py    words and labels with their counts, from text of any size
ngrams.py        character and word n-grams as buckets, as fastText hashes them
huffman.py       the tree of hierarchical softmax
losses.py        what a loss needs beside its weights: the tree, the table of negatives
plain.py         one update in NumPy, as a student reads it; kernels/ does the same fast, and a test compares them
encode.py        text as arrays of ids on the disk
training.py      the loop
network.py       the two matrices, and the sum of a word's or a line's rows
folder.py        a model folder; bin_file.py, text_files.py: the files of others
quantise.py      product quantisation, for files a tenth of the size
labeller.py      a loaded classifier; word_vectors.py: loaded vectors
"""
