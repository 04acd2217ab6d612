"""Commands; imports the client only."""
