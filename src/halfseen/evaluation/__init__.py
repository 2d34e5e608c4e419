"""Off-policy evaluation: estimates of what another policy would have earned on logged decisions."""
