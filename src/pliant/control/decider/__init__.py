"""The decider: a core that takes rows and returns plans, in this process or in one of its own."""
