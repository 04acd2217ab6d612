"""The bodies and answers of the API: their models and their OpenAPI description."""
