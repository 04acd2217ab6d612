"""What clients send: models of the bodies, and what they become for the service."""
