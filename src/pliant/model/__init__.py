"""The vocabulary: immutable values that every layer uses. Integers only, standard library only."""
