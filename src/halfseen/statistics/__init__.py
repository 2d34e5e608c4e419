"""Confidence intervals, growth exponents and distributions."""
