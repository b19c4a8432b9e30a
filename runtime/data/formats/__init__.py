"""One file per format of data, each with a call of `register`; the folder is listed by `names`."""
