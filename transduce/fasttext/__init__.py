"""Word vectors and the fast classifier: fastText's job, with its files and its answers.

dictionary.py    words and labels with their counts, from text of any size
ngrams.py        character and word n-grams as buckets, as fastText hashes them
huffman.py       the tree of hierarchical softmax
plain.py         one update in NumPy, as a student reads it; kernels/ does the same fast, and a test compares them
encode.py        text as arrays of ids on the disk
network.py       the two matrices, and the mean of a word's or a line's rows
training.py      the loop; fit.py: from text to a run folder; autotune.py: good settings by trying
folder.py        a model folder; bin_file.py and text_files.py: the files of others
quantise.py      product quantisation, for files a tenth of the size
labelled.py      text with labels; measure.py: how good labels are
labeller.py      a loaded classifier
word_vectors.py  loaded vectors; judged.py: how well they agree with people; pretrained.py: to begin with them
"""
