"""What sensitive values look like in text: names, forms, numbers, encodings."""
