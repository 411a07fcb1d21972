"""Engines: what turns token ids into translations' token ids, behind one `Translator`."""
