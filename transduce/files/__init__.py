"""What lies on disk: safe reading and writing, manifests, locks, the paths of a run, metrics. No torch here."""
