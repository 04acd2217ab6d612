"""Tests of `why`, what-if, replay and fairness audit."""
