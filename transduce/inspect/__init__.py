"""Looking at models and runs."""
