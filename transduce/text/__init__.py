"""From characters to token ids and back, and the bundled corpus."""
