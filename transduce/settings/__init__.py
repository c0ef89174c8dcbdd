"""Settings: their sections, how they are composed and checked, presets, recipes, and what a task is."""
