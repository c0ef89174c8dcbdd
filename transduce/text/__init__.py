"""From characters to token ids and back."""
