"""The steps that made the tables what they are now; run by pliant.store.migrate."""
