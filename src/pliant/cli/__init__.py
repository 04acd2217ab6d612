"""The commands. They import the client, never the server, which runs as a process of its own."""
