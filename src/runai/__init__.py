"""Names of the first researcher library, on pliant.train: `runai.elastic.torch` and `runai.ga.torch`.

A small compatibility package of Pliant, which is affiliated with nobody else. Scripts that only read a plan
at their start run unchanged: a resize stops them, and they begin again from their own checkpoint with another
plan. To be resized while it runs, a script uses `pliant.train`.
"""
