"""Files of any size: cut into shards, translated by several processes or machines, joined in order.

`run.translate_file` is the way through it: `inputs.py` cuts, `worker.py` translates (many of them in `pool.py`, or on
several machines in `cluster.py`), `parts.py` keeps what is done, `joining.py` puts it together.
"""
