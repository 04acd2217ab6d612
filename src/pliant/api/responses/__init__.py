"""What clients are told: models of the answers, and how views become them."""
