"""Columns of tables: how raw values (numbers, texts, truths, dates, gaps) become the numbers of an input."""
