"""The dashboard at /, with its static files and the routes that provide its data."""
