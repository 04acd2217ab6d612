"""Who decides: a core that is fed rows and answers plans, in this process or in one of its own."""
