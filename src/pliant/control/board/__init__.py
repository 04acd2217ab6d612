"""What readers see: the board, fairness sums, measurements, outcomes, allocation documents."""
