"""Many streams of one agent, decided and learnt together."""
