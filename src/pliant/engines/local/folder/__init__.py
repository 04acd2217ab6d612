"""The state folder of attempts: its layout, logs, sealed values, and what was deleted."""
