"""Models of others, in and out: one file a format."""
