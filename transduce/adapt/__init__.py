"""Carry over what a model has learned: begin with it."""
