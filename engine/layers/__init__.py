"""Building blocks of models: parameters and weights as data, one call written against the op contract."""
