"""From text files to batches: read and pair, tokenize into a store, cut into batches."""
