"""Fitting a model to text."""
