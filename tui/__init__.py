"""The live dashboard: an app, screens and widgets, each fed a Report."""
