"""Ranks and what they do: the world, the exchange, participants, the server, rounds."""
