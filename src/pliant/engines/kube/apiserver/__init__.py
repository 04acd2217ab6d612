"""The API server: the connection, requests and watches, and the names of our objects there."""
