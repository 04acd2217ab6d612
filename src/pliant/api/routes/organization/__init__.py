"""Routes for machines, and for the projects and departments that own their quota."""
