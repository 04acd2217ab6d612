"""`pliant mcp`: queries and changes for an agent, as tools of the Model Context Protocol."""
