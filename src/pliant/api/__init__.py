"""REST at the edge: routes, wire schemas, authentication."""
