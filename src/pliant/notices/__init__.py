"""Notifies people about their jobs: by mail and by webhooks."""
