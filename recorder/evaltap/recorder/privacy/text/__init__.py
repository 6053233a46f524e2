"""Forms of sensitive values in text: names, formats, numbers, encodings."""
