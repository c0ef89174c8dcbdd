"""Whole models, built from settings."""
