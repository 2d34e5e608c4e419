"""Confidence intervals, growth exponents, autocorrelated series and distribution functions."""
