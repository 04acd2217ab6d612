"""What is told: the board that readers see, who was due what and who got it, allocation documents."""
