"""The REST API: routes, schemas of bodies and answers, authentication."""
