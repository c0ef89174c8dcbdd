"""The fast twin of the plain search: the same answers, sooner."""
