"""Provides `runai.elastic.torch` and `runai.ga.torch`, the first researcher library's names, on pliant.train.

A small compatibility package of Pliant, which is not affiliated with another vendor. Scripts that read the
plan only at their start run unchanged: a resize stops them, and they restart from their own checkpoint with
another plan. A script that resizes without a restart uses `pliant.train`.
"""
