"""Off-policy evaluation: what another policy would have earned on logged decisions, in numbers. No pictures here."""
