"""One module for each contender, with `train(job, turns)`: it updates until the turns end."""
