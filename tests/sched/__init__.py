"""Tests of the core: small worlds as text, a clock of their own, and a referee that knows only the rules."""
