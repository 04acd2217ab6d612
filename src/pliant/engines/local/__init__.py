"""Tasks as processes of this machine, each under its own supervisor."""
