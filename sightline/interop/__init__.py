"""To and from other programs: names and layouts of weights, tested by parity. Only `transformers` here needs torch."""
