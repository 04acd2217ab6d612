"""The supervisor in Python, for machines without a C compiler."""
