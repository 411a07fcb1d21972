"""To and from other programs: names and layouts of weights, tested by parity. No torch in here."""
