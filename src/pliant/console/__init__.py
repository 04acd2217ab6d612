"""Web pages. They only call the API of the same process, with their reader's own credentials."""
