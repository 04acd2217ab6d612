"""SDK and wire types, standard library only."""
