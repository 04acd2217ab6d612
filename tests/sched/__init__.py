"""Tests of the core: small worlds as text, a virtual clock, and a referee that knows only the rules."""
