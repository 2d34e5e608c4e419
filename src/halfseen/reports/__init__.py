"""Figures, tables and pages, made from plain data."""
