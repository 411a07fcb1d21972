"""One module for each contender, with `build(job)`, which gives its decoder."""
