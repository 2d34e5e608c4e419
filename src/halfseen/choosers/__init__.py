"""The choosers: each file contains one rule for choosing an arm."""
