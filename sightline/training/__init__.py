"""Learning: schedules of the rate, checkpoints, the loop, its metrics file and its progress display."""
