"""``dslc predict``: the data of a prediction, its rows in batches, and the files that take the results."""
