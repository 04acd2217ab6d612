"""Turns the bodies that clients send into what the service takes."""
