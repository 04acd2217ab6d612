"""The vocabulary: frozen values that every layer speaks in. Integers only, standard library only."""
