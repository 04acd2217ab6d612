"""`pliant mcp`: what an agent may ask and change, as tools of the Model Context Protocol."""
