"""What the API takes and answers, as models and as its description."""
