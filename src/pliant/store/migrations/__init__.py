"""How the tables got their present form, step by step; run by pliant.store.migrate."""
