"""temp"""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
